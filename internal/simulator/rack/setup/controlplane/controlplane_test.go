package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/dns"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/underlay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stepped is a clock that moves when the test says so, and notes what it is
// asked for.
type stepped struct {
	asked chan time.Duration
	tick  chan time.Time
}

func (s *stepped) After(d time.Duration) <-chan time.Time {
	s.asked <- d

	return s.tick
}

func newStepped() *stepped {
	return &stepped{asked: make(chan time.Duration, 100), tick: make(chan time.Time)}
}

// parts are what a control plane lives among.
type parts struct {
	t        *testing.T
	underlay *underlay.Underlay
	kept     *store.Memory
	database *Database
	peers    Peers
	logs     *observer.ObservedLogs
	log      *zap.Logger
	services plan.Services
	handOver HandOver
}

// newParts makes an underlay with DNS and a database. The records of what it
// has are entered by the test.
func newParts(t *testing.T) *parts {
	t.Helper()

	core, logs := observer.New(zapcore.DebugLevel)
	kept := &store.Memory{}
	p := &parts{t: t, underlay: &underlay.Underlay{}, kept: kept, database: NewDatabase(kept), logs: logs, log: zap.New(core)}
	transport := &http.Transport{DialContext: p.underlay.DialContext}
	p.peers = Peers{
		Resolver: &dns.Resolver{Servers: []netip.AddrPort{netip.MustParseAddrPort("[fd00::53]:53")}, Dial: p.underlay.DialContext},
		HTTP:     &http.Client{Transport: transport},
	}

	for i, kind := range []plan.ServiceKind{plan.Database, plan.Database, plan.ControlPlane, plan.ControlPlane} {
		at := netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1)), 1000)
		p.services.Services = append(p.services.Services, plan.Service{ID: uuid.NewString(), Kind: kind, Address: at})
	}

	p.handOver = HandOver{
		RackID: uuid.NewString(), DNSZone: "rack.example.com", Certificates: []string{"one"}, Services: p.services.Services,
		Sleds:    []Sled{{ID: uuid.NewString(), Serial: "S1", CPUs: 4, Memory: 8}},
		Datasets: []Dataset{{Dataset: plan.Dataset{ID: uuid.NewString(), Kind: "storage"}, PoolSize: 10}},
	}

	// Before the services end, so that none waits for an idle connection.
	t.Cleanup(transport.CloseIdleConnections)

	return p
}

func (p *parts) startDNS() {
	p.t.Helper()

	conn, err := p.underlay.ListenPacket(p.t.Context(), p.peers.Resolver.Servers[0])
	if err != nil {
		p.t.Fatal(err)
	}

	server, err := dns.Serve(conn, p.kept, "one")
	if err != nil {
		p.t.Fatal(err)
	}

	p.t.Cleanup(func() { server.Close() })

	if err := server.Set(dns.Of(p.services)); err != nil {
		p.t.Fatal(err)
	}
}

// startDatabase starts the nodes from the nth on.
func (p *parts) startDatabase(from int) {
	p.t.Helper()

	for _, x := range p.services.Services[from:2] {
		l, err := p.underlay.Listen(p.t.Context(), x.Address)
		if err != nil {
			p.t.Fatal(err)
		}

		node := &http.Server{Handler: p.database.Handler(), ReadHeaderTimeout: time.Second}

		var done sync.WaitGroup

		done.Go(func() { _ = node.Serve(l) })
		p.t.Cleanup(func() {
			p.peers.HTTP.CloseIdleConnections()

			_ = Stop(node)

			done.Wait()
		})
	}
}

func (p *parts) start(nth int, clock Clock) *ControlPlane {
	p.t.Helper()

	x := p.services.Services[2+nth]

	l, err := p.underlay.Listen(p.t.Context(), x.Address)
	if err != nil {
		p.t.Fatal(err)
	}

	c := Start(Config{ID: x.ID, Peers: p.peers, Clock: clock, Log: p.log}, l)
	p.t.Cleanup(func() {
		p.peers.HTTP.CloseIdleConnections()

		if err := c.Close(); err != nil {
			p.t.Error(err)
		}
	})

	return c
}

// inside calls the internal interface of a control plane.
func (p *parts) inside(nth int, method, path string, body any) (int, string) {
	p.t.Helper()

	raw, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}

	if s, ok := body.(string); ok {
		raw = []byte(s)
	}

	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://"+p.services.Services[2+nth].Address.String()+path, bytes.NewReader(raw))
	if err != nil {
		p.t.Fatal(err)
	}

	resp, err := p.peers.HTTP.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}

	defer resp.Body.Close()

	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}

	return resp.StatusCode, string(answer)
}

func (p *parts) asked(clock *stepped) {
	p.t.Helper()

	select {
	case d := <-clock.asked:
		if d != 2*time.Second {
			p.t.Fatalf("it asks again after %s", d)
		}
	case <-time.After(10 * time.Second):
		p.t.Fatal("it does not ask again")
	}
}

func (p *parts) warned(part string) int {
	n := 0

	for _, e := range p.logs.FilterMessageSnippet("can not read whether the rack has been handed over").All() {
		if e.Level == zapcore.WarnLevel && strings.Contains(fmt.Sprint(e.ContextMap()["error"]), part) {
			n++
		}
	}

	return n
}

// Invariant: a control plane asks its database every two seconds, finds it in
// DNS, warns for as long as it can not read it, and is told by it alone.
func TestAControlPlaneAsksUntilItIsTold(t *testing.T) {
	p, clock := newParts(t), newStepped()
	c := p.start(0, clock)

	step := func() {
		clock.tick <- time.Time{}
		p.asked(clock)
	}

	p.asked(clock)

	if p.warned("connection refused") != 1 {
		t.Errorf("without DNS: %v", p.logs.All())
	}

	p.startDNS()
	step()

	if p.warned("connection refused") != 2 {
		t.Errorf("without a database: %v", p.logs.All())
	}

	p.startDatabase(1)
	p.database.Break(errors.New("no quorum"))
	step()
	step()

	if p.warned("no quorum") != 2 {
		t.Errorf("with a database that is not readable: %v", p.logs.All())
	}

	p.database.Break(nil)

	before := p.logs.Len()

	step()

	if p.logs.Len() != before {
		t.Errorf("it warns although all is well: %v", p.logs.All()[before:])
	}

	if status, body := p.inside(0, http.MethodPut, handOverPath, p.handOver); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}

	if _, body := p.inside(0, http.MethodGet, "/health", nil); !strings.Contains(body, `"state":"waiting"`) {
		t.Errorf("it knows before it has asked: %s", body)
	}

	clock.tick <- time.Time{}

	<-c.Told()

	if got := c.HandOver(); got.RackID != p.handOver.RackID || len(got.Datasets) != 1 || got.Datasets[0].PoolSize != 10 {
		t.Errorf("told: %+v", got)
	}

	if _, body := p.inside(0, http.MethodGet, "/health", nil); !strings.Contains(body, `"state":"told"`) {
		t.Errorf("health: %s", body)
	}

	// After a restart the first question tells it.
	again := newParts(t)
	again.database = NewDatabase(p.kept)
	again.startDNS()
	again.startDatabase(0)

	second := again.start(1, newStepped())

	<-second.Told()
}

// Invariant: of hand-overs at the same time to several control planes exactly
// one wins, whatever they say; the others return early and change nothing.
func TestTwoHandOversAtOnceLeaveOneWinner(t *testing.T) {
	for round := range 20 {
		p := newParts(t)
		p.startDNS()
		p.startDatabase(0)
		p.start(0, newStepped())
		p.start(1, newStepped())

		var (
			ended sync.WaitGroup
			mu    sync.Mutex
			won   []string
			start = make(chan struct{})
		)

		for i := range 6 {
			ended.Go(func() {
				mine := p.handOver
				mine.DNSZone = fmt.Sprintf("zone-%d.example.com", i)

				<-start

				first, err := p.peers.HandOver(t.Context(), mine)
				if err != nil {
					t.Error(err)
				}

				if first {
					mu.Lock()
					won = append(won, mine.DNSZone)
					mu.Unlock()
				}
			})
		}

		close(start)
		ended.Wait()

		stored, err := p.peers.readRack(t.Context())
		if err != nil || len(won) != 1 || stored.DNSZone != won[0] {
			t.Fatalf("round %d: %q won, the database has %q, %v", round, won, stored.DNSZone, err)
		}

		if n := p.logs.FilterMessageSnippet("changes nothing").Len(); n != 5 {
			t.Fatalf("round %d: %d of 5 were logged", round, n)
		}
	}
}

func TestASecondHandOverChangesNothing(t *testing.T) {
	p := newParts(t)
	p.startDNS()
	p.startDatabase(0)
	p.start(0, newStepped())
	p.start(1, newStepped())

	if status, body := p.inside(0, http.MethodPut, handOverPath, p.handOver); status != http.StatusCreated || !strings.Contains(body, `"first":true`) {
		t.Fatalf("%d %s", status, body)
	}

	before, _, _ := p.kept.Load(DatabaseName)

	if status, body := p.inside(1, http.MethodPut, handOverPath, p.handOver); status != http.StatusOK || body != `{"first":false}` {
		t.Errorf("the same again: %d %s", status, body)
	}

	if n := p.logs.FilterMessageSnippet("had been handed over before; ").FilterLevelExact(zapcore.InfoLevel).Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}

	other := p.handOver
	other.Certificates = []string{"one", "two"}
	other.Datasets = nil

	if status, body := p.inside(0, http.MethodPut, handOverPath, other); status != http.StatusOK || body != `{"first":false,"differs":["certificates","datasets"]}` {
		t.Errorf("another one: %d %s", status, body)
	}

	warned := p.logs.FilterMessageSnippet("with other parameters").FilterLevelExact(zapcore.WarnLevel).All()
	if len(warned) != 1 || fmt.Sprint(warned[0].ContextMap()["differs"]) != "[certificates datasets]" {
		t.Errorf("logged: %v", warned)
	}

	if after, _, _ := p.kept.Load(DatabaseName); !bytes.Equal(after, before) {
		t.Error("the database was changed")
	}
}

func TestWhatIsNoHandOverIsRefused(t *testing.T) {
	p := newParts(t)
	p.startDNS()
	p.start(0, newStepped())

	for body, want := range map[string]int{
		`{`: http.StatusBadRequest, `{}`: http.StatusBadRequest, `{"racks": 1}`: http.StatusBadRequest,
	} {
		if status, answer := p.inside(0, http.MethodPut, handOverPath, body); status != want || !strings.Contains(answer, "no hand-over") {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}

	// A right one fails for as long as it can not be stored.
	if status, answer := p.inside(0, http.MethodPut, handOverPath, p.handOver); status != http.StatusServiceUnavailable || !strings.Contains(answer, "storing the hand-over") {
		t.Errorf("%d %s", status, answer)
	}
}

// Datasets come with the hand-over, and in no other way, before or after it.
func TestDatasetsAreRegisteredByTheHandOverAlone(t *testing.T) {
	p := newParts(t)
	p.startDNS()
	p.startDatabase(0)
	p.start(0, newStepped())

	refused := func() {
		t.Helper()

		before, _, _ := p.kept.Load(DatabaseName)

		status, body := p.inside(0, http.MethodPut, "/datasets/"+uuid.NewString(), p.handOver.Datasets[0])
		if status != http.StatusConflict || !strings.Contains(body, "in no other way") {
			t.Errorf("%d %s", status, body)
		}

		if after, _, _ := p.kept.Load(DatabaseName); !bytes.Equal(before, after) {
			t.Error("the database was changed")
		}
	}

	refused()

	if status, body := p.inside(0, http.MethodPut, handOverPath, p.handOver); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}

	refused()
}
