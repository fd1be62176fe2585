package rack

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// get is a plain GET of the API, as a client sees it that reads no JSON.
func (r *rig) get(path string) (status int, h http.Header, body string, err error) {
	r.t.Helper()

	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, http.NoBody)
	must(0, err)(r.t)
	req.Header.Set("Authorization", "Bearer "+DefaultToken)

	resp, err := r.http.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()

	raw, err := io.ReadAll(resp.Body)

	return resp.StatusCode, resp.Header, string(raw), err
}

func TestFaultErrorHasRetryAfter(t *testing.T) {
	r := newRig(t)
	r.fault(Fault{Operation: "disk_list", Action: ActionError, Status: 429, RetryAfter: "20"})

	_, err := r.client.DiskList(t.Context(), oxide.DiskListParams{Project: demo})

	var h *oxide.HTTPError
	if !errors.As(err, &h) || h.HTTPResponse.StatusCode != http.StatusTooManyRequests || h.HTTPResponse.Header.Get("Retry-After") != "20" {
		t.Errorf("got %v", err)
	}
}

// A proxy's page has a status and no JSON, so the client has no error body.
func TestFaultProxyPage(t *testing.T) {
	r := newRig(t)
	r.fault(Fault{Operation: "disk_create", Action: ActionProxyPage})

	_, err := r.createDisk("d", gib, blank(0))

	var h *oxide.HTTPError
	if !errors.As(err, &h) || h.HTTPResponse.StatusCode != http.StatusBadGateway || h.ErrorResponse != nil ||
		h.HTTPResponse.Header.Get("Content-Type") != "text/html" || h.HTTPResponse.Header.Get("X-Request-Id") != "" {
		t.Errorf("got %v", err)
	}

	r.RemoveFault(0)

	if r.exists("d") {
		t.Error("work was done behind the page")
	}
}

func TestFaultTruncatesAnAnswer(t *testing.T) {
	r := newRig(t)
	r.fault(Fault{Operation: "disk_create", Action: ActionTruncate})

	if _, err := r.createDisk("d", gib, blank(0)); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("got %v", err)
	}

	r.RemoveFault(0)

	if !r.exists("d") {
		t.Error("the work was not done")
	}
}

func TestFaultWrongContent(t *testing.T) {
	r := newRig(t)
	id := r.fault(Fault{Operation: "disk_list", Action: ActionWrongContent})

	if _, err := r.client.DiskList(t.Context(), oxide.DiskListParams{Project: demo}); err == nil {
		t.Error("a list that is none was read")
	}

	r.RemoveFault(id)
	r.fault(Fault{Operation: "disk_list", Action: ActionWrongContent, Body: "hello", ContentType: "text/plain", Status: 200})

	if status, h, body, err := r.get("/v1/disks?project=demo"); status != 200 || body != "hello" || h.Get("Content-Type") != "text/plain" {
		t.Errorf("%d %q %v", status, body, err)
	}
}

// The SDK passes on an instance's state that it does not know, and refuses a
// disk's.
func TestFaultUnknownState(t *testing.T) {
	r := newRig(t, onlyVMs)
	i, d := r.instance("i"), r.disk("d", gib, blank(0))
	r.fault(Fault{Method: http.MethodGet, Action: ActionUnknownState})

	if st := r.runState(i.Id); st != "hibernating" {
		t.Errorf("the instance is %s", st)
	}

	if _, err := r.client.DiskView(t.Context(), oxide.DiskViewParams{Disk: oxide.NameOrId(d.Id)}); err == nil {
		t.Error("the SDK knows a state that it can not")
	}

	if _, _, body, _ := r.get("/v1/disks?project=demo"); !strings.Contains(body, `"state":{"state":"hibernating"}`) {
		t.Error(body)
	}
}

// A proxy that drops a header: without a version the newest is assumed, without
// credentials nothing is.
func TestFaultStripsAHeader(t *testing.T) {
	r := newRig(t)
	r.fault(Fault{Operation: opPing, Action: ActionStripHeader, Header: "Api-Version"})
	must(r.client.Ping(t.Context()))(t)

	id := r.fault(Fault{Operation: "current_user_view", Action: ActionStripHeader, Header: "Authorization"})
	_, err := r.client.CurrentUserView(t.Context())
	wantError(t, err, 401, "Unauthorized", "")

	r.RemoveFault(id)
	r.fault(Fault{Operation: "current_user_view", Action: ActionStripHeader, Header: "X-Request-Id"})

	if status, h, _, err := r.get("/v1/me"); err != nil || status != 200 || h.Get("X-Request-Id") != "" {
		t.Errorf("%d %v %v", status, h, err)
	}
}

// A deletion that fails leaves the disk faulted, under another name and still
// charged for; its ID is the way to it.
func TestFaultedDelete(t *testing.T) {
	r := newRig(t)
	d := r.disk("d", gib, blank(0))
	r.fault(Fault{Action: ActionFaultDelete, Count: 1})

	remove := func() error {
		return r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)})
	}
	wantError(t, remove(), 500, "Internal", "Internal Server Error")

	got := must(r.client.DiskView(t.Context(), oxide.DiskViewParams{Disk: oxide.NameOrId(d.Id)}))(t)
	if string(got.Name) != "deleted-"+d.Id || got.State.State() != oxide.DiskStateStateFaulted || r.exists("d") {
		t.Errorf("it is %s, %s", got.Name, got.State.State())
	}

	if s := r.Summary(); s.Provisioned.Storage != gib {
		t.Errorf("%d bytes are charged", s.Provisioned.Storage)
	}

	must(0, remove())(t)

	if s := r.Summary(); s.Provisioned.Storage != 0 || len(s.Disks) != 0 {
		t.Errorf("left: %+v", s)
	}
}

// Rules work within their time, which a clock can be stepped through.
func TestFaultsWithinATime(t *testing.T) {
	clock := NewStepClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := newRig(t, func(c *Config) {
		c.Clock, c.TimeScale, c.Latencies = clock, 1, &Latencies{}
		c.Faults = []Fault{{Operation: opPing, Action: ActionError, Status: 503, From: Duration(time.Minute), Until: Duration(3 * time.Minute), Since: "start"}}
	})

	pings := func() bool {
		_, err := r.client.Ping(t.Context())

		return err == nil
	}

	// Two wait: for its beginning and for its end.
	for minute, want := range []bool{true, false, false, true, true} {
		eventually(t, "minute "+time.Duration(minute).String(), func() bool { return pings() == want })
		clock.Sleepers(t.Context(), map[int]int{0: 2, 1: 1, 2: 1}[minute])
		clock.Step(time.Minute)
	}

	// One that counts from the start and is added late works at once.
	r.fault(Fault{Operation: opPing, Action: ActionError, From: Duration(time.Minute), Since: "start"})

	if pings() {
		t.Error("a rule whose time had begun did not work")
	}
}
