package omni_test

import (
	"context"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"google.golang.org/grpc/codes"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

// Young streams that are cut are taken up again by the same Run, and nothing
// that happened meanwhile is missed.
func TestCutStreamsAreResumed(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	r := provider.startWithNewKey(server)

	applySet(t, server, "1")
	count[*omni.Machine](t, server.AdminState(), 1)

	before := server.OpenStreams()

	if cut := server.CutStreams(); cut == 0 || cut != before {
		t.Errorf("cut %d of %d streams", cut, before)
	}

	applySet(t, server, "3")
	count[*omni.Machine](t, server.AdminState(), 3)

	server.DropConnections()
	applySet(t, server, "0")
	count[*infrares.MachineRequest](t, server.AdminState(), 0)

	select {
	case err := <-r.result:
		r.result <- err
		t.Errorf("Run ended: %v", err)
	default:
	}
}

// A bookmark that the server has forgotten ends Run at once.
func TestStaleBookmarksEndRun(t *testing.T) {
	server := newServer(t)
	r := newToy(t).startWithNewKey(server)

	applySet(t, server, "1")
	count[*omni.Machine](t, server.AdminState(), 1)

	server.StaleBookmarks()
	server.CutStreams()

	if err := r.wait(t); err == nil || !strings.Contains(err.Error(), "invalid watch bookmark") {
		t.Errorf("Run ended with %v", err)
	}
}

// A restarted Omni has its resources, keys and addresses, and a provider that
// starts again goes on.
func TestStopAndStart(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)

	key, err := server.MintProviderKey(t.Context(), toyID, time.Hour)
	check(t, err)

	r := provider.start(server, key)
	count[*infrares.ProviderStatus](t, server.AdminState(), 1)

	applySet(t, server, "2")
	count[*omni.Machine](t, server.AdminState(), 2)

	endpoint := server.Endpoint()

	r.cancel()
	check(t, r.wait(t))
	server.Stop()

	if err := provider.start(server, key).wait(t); err == nil {
		t.Error("Run did not fail while Omni was away")
	}

	check(t, server.Start(t.Context()))

	if server.Endpoint() != endpoint {
		t.Errorf("the endpoint changed from %s to %s", endpoint, server.Endpoint())
	}

	provider.start(server, key)
	applySet(t, server, "0")
	count[*infrares.MachineRequest](t, server.AdminState(), 0)
}

// A data directory keeps resources and keys for the next process.
func TestDataDirectory(t *testing.T) {
	directory := t.TempDir()

	first := newServerWith(t, simulator.Config{DataDir: directory})

	key, err := first.MintProviderKey(t.Context(), "oxide", time.Hour)
	check(t, err)

	st := connect(t, first, key, "oxide").Omni().State()
	lease := newRecord("infra-provider:oxide", "Lease.oxide.infraprovider.sidero.dev", "holder")
	check(t, st.Create(t.Context(), lease))
	check(t, st.Create(t.Context(), infrares.NewProviderStatus("oxide")))

	gone := newRecord("infra-provider:oxide", "Lease.oxide.infraprovider.sidero.dev", "gone")
	check(t, st.Create(t.Context(), gone))
	check(t, st.Destroy(t.Context(), gone.Metadata()))
	check(t, first.Close())

	second := newServerWith(t, simulator.Config{DataDir: directory})
	st = connect(t, second, key, "oxide").Omni().State()

	_, err = st.Get(t.Context(), lease.Metadata())
	check(t, err)

	count[*infrares.ProviderStatus](t, st, 1)

	if _, err := st.Get(t.Context(), gone.Metadata()); !state.IsNotFoundError(err) {
		t.Errorf("a destroyed resource came back: %v", err)
	}
}

// A hook can drop a call before it does anything.
func TestAHookDropsACall(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")
	typ := "Lease.oxide.infraprovider.sidero.dev"

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	dropped := make(chan int, 1)

	server.SetHooks(func(number int, name string) {
		if strings.HasPrefix(name, "Create "+typ) {
			dropped <- number

			cancel()
			runtime.Goexit()
		}
	}, nil)

	record := newRecord("infra-provider:oxide", typ, "first")
	if err := st.Create(ctx, record); err == nil {
		t.Error("the dropped call was answered")
	}

	if c, ok := server.Call(<-dropped); !ok || c.Verb != "Create" || c.Code != "" {
		t.Errorf("the call is %+v", c)
	}

	if _, err := server.AdminState().Get(t.Context(), record.Metadata()); !state.IsNotFoundError(err) {
		t.Errorf("the dropped call took effect: %v", err)
	}

	if _, ok := server.Call(99); ok {
		t.Error("a call that was not made is in the log")
	}
}

// Faults fail one write, before or after it took effect; calls are numbered,
// and hooks see each before it acts and after.
func TestFaultsCallsAndHooks(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")

	var (
		mu    sync.Mutex
		names []string
	)

	server.SetHooks(
		func(_ int, name string) { mu.Lock(); names = append(names, "before "+name); mu.Unlock() },
		func(_ int, name string) { mu.Lock(); names = append(names, "after "+name); mu.Unlock() },
	)

	typ := "Lease.oxide.infraprovider.sidero.dev"
	server.Inject(simulator.Fault{Verb: "Create", Type: typ, Number: 2, Code: codes.Internal})
	server.Inject(simulator.Fault{Verb: "Update", Type: typ, After: true})

	first := newRecord("infra-provider:oxide", typ, "first")
	check(t, st.Create(t.Context(), first))

	second := newRecord("infra-provider:oxide", typ, "second")
	if err := st.Create(t.Context(), second); err == nil || !strings.Contains(err.Error(), "injected") {
		t.Errorf("the second create: %v", err)
	}

	check(t, st.Create(t.Context(), second))

	first.TypedSpec().Value.Status = "written"
	if err := st.Update(t.Context(), first); err == nil {
		t.Error("the update's answer was not lost")
	}

	calls := server.Calls()
	last := calls[len(calls)-1]

	if last.Verb != "Update" || last.Type != typ || last.ID != "first" || last.Code != "Unavailable" || last.Number != len(calls) ||
		last.Identity != "oxide@infra-provider.serviceaccount.omni.sidero.dev" {
		t.Errorf("the last call is %+v", last)
	}

	written, err := server.AdminState().Get(t.Context(), first.Metadata())
	check(t, err)

	if written.Metadata().Version().String() != "2" {
		t.Errorf("the update did not take effect: version %s", written.Metadata().Version())
	}

	mu.Lock()
	defer mu.Unlock()

	if got, want := strings.Join(names[:2], ", "), "before Create "+typ+" first, after Create "+typ+" first"; got != want {
		t.Errorf("hooks saw %q, want %q", got, want)
	}
}

// Heartbeats show as connected, with the provider's error beside.
func TestProviderHealthIsShown(t *testing.T) {
	server := newServer(t)
	newToy(t).startWithNewKey(server)

	eventually(t, "the provider is connected", func() (bool, string) {
		all := list[*omni.InfraProviderCombinedStatus](t, server.AdminState())
		if len(all) != 1 {
			return false, ""
		}

		value := all[0].TypedSpec().Value

		return value.GetHealth().GetConnected() && value.GetName() == "Toy", value.String()
	})
}

// The control endpoint serves other processes, on loopback only.
func TestControlEndpoint(t *testing.T) {
	server := newServerWith(t, simulator.Config{ControlListen: "127.0.0.1:0"})
	base := "http://" + server.Address(simulator.ListenerControl)

	post := func(path string) string {
		t.Helper()

		return call(t, http.MethodPost, base+path)
	}

	key := strings.TrimSpace(post("/providers/oxide/key"))
	st := connect(t, server, key, "oxide").Omni().State()

	_, err := st.List(t.Context(), infrares.NewMachineRequest("").Metadata())
	check(t, err)

	if !server.KnowsKey(t.Context(), strings.TrimSpace(post("/admin-key"))) {
		t.Error("the administrator's key is unknown")
	}

	post("/cut-streams")

	if calls := call(t, http.MethodGet, base+"/calls"); !strings.Contains(calls, infrares.MachineRequestType) {
		t.Errorf("calls: %s", calls)
	}

	if summary := call(t, http.MethodGet, base+"/summary"); !strings.Contains(summary, `"machines":0`) {
		t.Errorf("summary: %s", summary)
	}

	if _, err := simulator.New(simulator.Config{ControlListen: "0.0.0.0:0"}); err == nil {
		t.Error("the control endpoint may listen on all interfaces")
	}
}

// Watches deliver only what the provider may see.
func TestWatchesAreFiltered(t *testing.T) {
	server := newServer(t)
	st := providerState(t, server, "oxide")
	admin := server.AdminState()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	events := make(chan []state.Event)
	check(t, st.WatchKindAggregated(ctx, infrares.NewMachineRequest("").Metadata(), events, state.WithBootstrapContents(true)))

	check(t, admin.Create(ctx, newRequest("theirs", "other")))
	check(t, admin.Create(ctx, newRequest("ours", "oxide")))

	for {
		select {
		case batch := <-events:
			for _, event := range batch {
				if event.Type != state.Created {
					continue
				}

				if event.Resource.Metadata().ID() != "ours" {
					t.Errorf("saw %s", event.Resource.Metadata().ID())
				}

				return
			}
		case <-time.After(patience):
			t.Fatal("no event")
		}
	}
}
