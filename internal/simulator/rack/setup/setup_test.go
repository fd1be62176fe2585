package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// A rack says each step as it goes, in this order.
func TestARackComesUpInOrder(t *testing.T) {
	u := comeUp(t, Config{Description: described(t, 4)})
	h := u.handOver()

	if len(h.Sleds) != 4 || len(h.Services) != 10 || len(h.DNS) != 5 || len(h.AddressPools) != 1 || h.Certificates[0] != "rack.example.com" {
		t.Errorf("handed over: %+v", h)
	}

	rest := strings.Join(u.State().Lines, "\n")

	for _, next := range []string{
		"4 sleds come up", "every sled reports", "sled plan made and stored", "sled BRM42220004 is", "service plan made and stored: 3 internal DNS, 2 external DNS, 3 database",
		"internal DNS server runs", "names are entered in DNS, of 15 services and 49 datasets", "database runs", "pantry runs",
		"control-plane runs", "it answers inside, at http://127.0.0.1:", "its API does not",
		"hand-over: the control plane has taken the rack", "marked as complete", "ready: the control plane has read",
	} {
		_, after, found := strings.Cut(rest, next)
		if !found {
			t.Fatalf("%q does not come in its place:\n%s", next, strings.Join(u.State().Lines, "\n"))
		}

		rest = after
	}

	if s := u.State(); s.Phase != PhaseReady || s.Waiting != "" {
		t.Errorf("%+v", s)
	}
}

// DNS servers run before any other service, and all records are entered before
// one of those starts.
func TestDNSComesFirst(t *testing.T) {
	var (
		mu      sync.Mutex
		actions []string
	)

	u := comeUp(t, Config{Description: described(t, 3), Around: func(action string) error {
		mu.Lock()
		defer mu.Unlock()

		actions = append(actions, action)

		return nil
	}})
	u.handOver()

	last := map[string]int{}
	first := map[string]int{}

	for i, a := range actions {
		for _, kind := range []string{"DNS server", "enter records", "database", "control-plane", "pantry", "metrics", "hand-over", "initialize"} {
			if strings.Contains(a, kind) {
				last[kind] = i

				if _, seen := first[kind]; !seen {
					first[kind] = i
				}
			}
		}
	}

	if len(first) != 8 {
		t.Fatalf("carried out: %v", first)
	}

	for _, kind := range []string{"database", "control-plane", "pantry", "metrics"} {
		if first[kind] < last["enter records"] {
			t.Errorf("%s started before DNS was whole", kind)
		}
	}

	if last["DNS server"] > first["enter records"] || last["initialize"] > first["DNS server"] || last["database"] > first["control-plane"] {
		t.Errorf("out of order: first %v, last %v", first, last)
	}
}

// Pools that come late are waited for, by name, and a sled that never reports
// holds the rack until somebody makes it.
func TestASledThatDoesNotReport(t *testing.T) {
	d := described(t, 3)
	for i := 1; i < len(d.Sleds[1].Disks); i++ {
		d.Sleds[1].Disks[i].Reports = plan.Never
	}

	for i := range d.Sleds[2].Disks {
		d.Sleds[2].Disks[i].Reports = "20s"
	}

	kept := &store.Memory{}
	u := comeUp(t, Config{Description: d, Store: kept})
	u.eventually("both to be named", func() bool {
		return u.said("waiting for storage pools: sled BRM42220002 reports 1 of 3, sled BRM42220003 reports 0 of 3")
	})
	u.eventually("one to be named", func() bool {
		return u.State().Waiting == "waiting for storage pools: sled BRM42220002 reports 1 of 3"
	})

	if s := u.State(); s.Phase != PhaseWaiting || len(kept.Names()) != 0 {
		t.Errorf("%s, with %q stored", s.Phase, kept.Names())
	}

	for disk, want := range map[string]int{"BRM42220002-N4": http.StatusNoContent, "BRM42220002-N9": http.StatusNoContent, "other": http.StatusNotFound} {
		w := httptest.NewRecorder()
		u.Technician().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/setup/sleds/BRM42220002/disks/"+disk, nil))

		if w.Code != want {
			t.Errorf("%s: %d %s", disk, w.Code, w.Body)
		}
	}

	h := u.handOver()
	pools := 0

	for _, x := range h.Datasets {
		if x.Kind == plan.StorageDataset && x.SledID == h.Sleds[1].ID {
			pools++
		}
	}

	if pools != 3 {
		t.Errorf("%d pools of the sled are in the plan", pools)
	}

	if err := u.Report("nobody", "x"); err == nil {
		t.Error("a sled that is not there reported")
	}

	// What was made to come up is there at once after a restart.
	u.end()

	again := comeUp(t, Config{Description: d, Store: kept})
	again.handOver()

	w := httptest.NewRecorder()
	again.Technician().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/setup", nil))

	var s State
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Phase != PhaseReady {
		t.Errorf("%s, %v", w.Body, err)
	}
}

// A pool that a plan has a dataset in, and that is not there after a restart, is
// waited for.
func TestAPoolOfThePlanIsWaitedFor(t *testing.T) {
	d := described(t, 1)
	kept := &store.Memory{}

	first := comeUp(t, Config{Description: d, Store: kept, Around: func(string) error { return errCrash }})
	if <-first.done; !errors.Is(first.err, errCrash) {
		t.Fatal(first.err)
	}

	first.end()

	d.Sleds[0].Disks[9].Reports = plan.Never

	second := comeUp(t, Config{Description: d, Store: kept})
	second.eventually("it to be named", func() bool {
		return strings.Contains(second.State().Waiting, "does not report the storage pool of disk BRM42220001-N9")
	})

	if err := second.Report("BRM42220001", "BRM42220001-N9"); err != nil {
		t.Fatal(err)
	}

	second.handOver()
}

// While the database can not be read the control plane warns, its internal
// interface answers, and the rack goes on when it can.
func TestADatabaseThatCanNotBeRead(t *testing.T) {
	broken := make(chan struct{})

	var u *upRack

	ready := make(chan struct{})
	u = comeUp(t, Config{Description: described(t, 1), Around: func(action string) error {
		<-ready

		if action == "before hand-over" {
			select {
			case <-broken:
			default:
				u.BreakDatabase(errors.New("the range is not available"))
				close(broken)
			}
		}

		return nil
	}})
	close(ready)
	<-broken

	u.eventually("three control planes to warn", func() bool {
		who := map[any]bool{}

		for _, e := range u.logs.FilterMessageSnippet("can not read whether the rack has been handed over").All() {
			if e.Level.String() == "warn" && strings.Contains(fmt.Sprint(e.ContextMap()["error"]), "the range is not available") {
				who[e.ContextMap()["control_plane.id"]] = true
			}
		}

		return len(who) == 3
	})
	u.eventually("setup to say why", func() bool { return strings.Contains(u.State().Waiting, "the range is not available") })

	if status, body := inside(t, u, http.MethodGet, "/health", ""); status != http.StatusOK || !strings.Contains(body, `"waiting"`) {
		t.Errorf("inside: %d %s", status, body)
	}

	u.BreakDatabase(nil)
	u.handOver()
}

// inside calls the internal interface of a control plane on loopback.
func inside(t *testing.T, u *upRack, method, path, body string) (int, string) {
	t.Helper()

	var url string

	u.eventually("a control plane", func() bool {
		for _, line := range u.State().Lines {
			if _, rest, found := strings.Cut(line, "it answers inside, at "); found {
				url, _, _ = strings.Cut(rest, ",")
			}
		}

		return url != ""
	})

	req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()

	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}

	defer resp.Body.Close()

	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	return resp.StatusCode, string(raw)
}

// The API gets its sleds, storage, pools and pantries from the hand-over; what
// a test has set itself stays.
func TestTheAPIIsMadeOfTheHandOver(t *testing.T) {
	d := described(t, 2)
	d.AddressPools = []plan.AddressPool{{
		Name: "office", Version: "v4", Default: true,
		Ranges: []plan.Range{{First: "198.18.0.1", Last: "198.18.0.2"}, {First: "198.18.7.1", Last: "198.18.7.4"}},
	}}
	d.Sleds[1].CPUs, d.Sleds[1].Platform = 256, "amd_turin"
	d.Services.Pantry = 2

	h := comeUp(t, Config{Description: d}).handOver()

	var c rack.Config

	Configure(&c, h)

	if len(c.Sleds) != 2 || c.Sleds[1] != (rack.Sled{Name: "BRM42220002", CPUs: 256, Memory: 1 << 40, Platform: "amd_turin"}) {
		t.Errorf("sleds: %+v", c.Sleds)
	}

	if p := c.Pools[0]; p.First != "198.18.0.1" || p.Size != 2 || p.More[0] != (rack.PoolRange{First: "198.18.7.1", Size: 4}) || !p.Default {
		t.Errorf("pools: %+v", c.Pools)
	}

	if len(c.Pantries) != 2 || c.RackStorage != 20*2980<<30 {
		t.Errorf("pantries %q, %d bytes", c.Pantries, c.RackStorage)
	}

	api, err := rack.New(c)
	if err != nil {
		t.Fatal(err)
	}

	api.Close()

	own := rack.Config{Sleds: rack.DefaultSleds(1), Pools: []rack.Pool{}, Pantries: []string{"p"}, RackStorage: 1}
	Configure(&own, h)

	if len(own.Sleds) != 1 || len(own.Pools) != 0 || len(own.Pantries) != 1 || own.RackStorage != 1 {
		t.Errorf("what was set has changed: %+v", own)
	}
}

func TestARackThatIsEndedWhileItComesUp(t *testing.T) {
	d := described(t, 1)
	for i := range d.Sleds[0].Disks {
		d.Sleds[0].Disks[i].Reports = plan.Never
	}

	u := comeUp(t, Config{Description: d})
	u.eventually("it to wait", func() bool { return u.State().Waiting != "" })
	u.cancel()

	if <-u.done; !errors.Is(u.err, context.Canceled) {
		t.Errorf("%v", u.err)
	}

	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "the rack description is wrong") {
		t.Errorf("without a description: %v", err)
	}
}
