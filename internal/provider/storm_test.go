package provider

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

const (
	// stormSize is how many requests a storm makes unless OIPO_STORM_SIZE says it.
	stormSize   = 40
	stormSleds  = 8
	replicas    = 2
	daemonToken = "daemon"
	// daemonSecret is the value of the daemon's token.
	daemonSecret = "oxide-token-daemon"
	janitorGrace = 10 * time.Minute
)

// storm is a site in a storm, with two replicas of the daemon.
type storm struct {
	*bench

	seed     uint64
	replicas [replicas]*replica
	foreign  map[string]string
	// away is when Omni comes back, zero while it is there.
	away time.Time
	// factory is how the factory fails, until when.
	factoryFault atomic.Int64
	factoryUntil atomic.Int64
	asked        int
	renamed      time.Time

	mu sync.Mutex
	// wanted are the requests that are there and not torn down; vanished those
	// that were removed by force.
	wanted, vanished map[string]bool
	// let are the requests that were let go.
	let map[string]bool
}

// Invariant: whatever goes wrong, for however long, in whatever order: each
// request has at most one instance at any time, nothing is stopped or deleted
// before Omni says so, nothing of a request is left when it was let go, nothing
// foreign is touched; and when it has stopped going wrong, every request that is
// wanted gets its machine, and every one that is not ends.
//
// Seeds are given by OIPO_STORM, as a list or as a number of random ones such as
// x20; a failure prints its seed and its schedule, which is the same each time.
func TestStorm(t *testing.T) {
	t.Parallel()

	size := stormSize
	if s := os.Getenv("OIPO_STORM_SIZE"); s != "" {
		size, _ = strconv.Atoi(s)
	}

	for _, seed := range stormSeeds(t, os.Getenv("OIPO_STORM")) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			began := time.Now()

			bubble(t, func(_ *testing.T, b *bench) { newStorm(b, seed).blow(size) }, stormy)
			t.Logf("%d requests in %s", size, time.Since(began).Round(time.Second))
		})
	}
}

func stormSeeds(t *testing.T, wish string) []uint64 {
	t.Helper()

	if n, ok := strings.CutPrefix(wish, "x"); ok || wish == "" {
		count := 1
		if ok {
			count, _ = strconv.Atoi(n)
		}

		return slices.Collect(func(yield func(uint64) bool) {
			for range count {
				if !yield(rand.Uint64() % 1_000_000) {
					return
				}
			}
		})
	}

	var seeds []uint64

	for s := range strings.SplitSeq(wish, ",") {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("OIPO_STORM is %q: seeds, with commas between, or x and how many", wish)
		}

		seeds = append(seeds, seed)
	}

	return seeds
}

// The same seed gives the same schedule.
func TestAStormIsAFunctionOfItsSeed(t *testing.T) {
	t.Parallel()

	text := func(seed uint64) string { return fmt.Sprint(stormOf(seed, 100)) }

	if first, again := text(7), text(7); first != again || first == text(8) {
		t.Error("the schedule is not the seed's")
	}
}

// stormy is a rack with a token for the daemon alone, at whose calls faults are
// aimed, and with guests that are worth losing.
func stormy(s *setup) {
	s.rack.Tokens = []simrack.Token{
		{Name: "operator", Value: simrack.DefaultToken, SiloRole: simrack.RoleCollaborator},
		{Name: daemonToken, Value: daemonSecret, SiloRole: simrack.RoleCollaborator},
	}
	s.rack.Sleds = simrack.DefaultSleds(stormSleds)
}

func newStorm(b *bench, seed uint64) *storm {
	b.t.Helper()

	s := &storm{bench: b, seed: seed, wanted: map[string]bool{}, vanished: map[string]bool{}, let: map[string]bool{}}

	download := http.HandlerFunc(s.download)
	b.download.Store(&download)

	at := s.atCall
	b.before.Store(&at)

	s.foreign = s.makeForeign()

	for i := range s.replicas {
		s.begin(i)
	}

	b.t.Cleanup(func() {
		for _, r := range s.replicas {
			r.end(b)
		}
	})

	return s
}

// blow has the storm come and go.
func (s *storm) blow(size int) {
	s.t.Helper()

	schedule := stormOf(s.seed, size)

	defer func() {
		if s.t.Failed() {
			var text strings.Builder
			for _, g := range schedule {
				fmt.Fprintln(&text, g)
			}

			s.t.Logf("OIPO_STORM=%d OIPO_STORM_SIZE=%d\n%s\nlog:\n%s", s.seed, size, text.String(), s.logText())
		}
	}()

	began := time.Now()

	for _, g := range schedule {
		for left := g.After; left > 0; left -= time.Second {
			s.pass(time.Second)
			s.tend()
		}

		s.check()
		s.apply(g)
	}

	s.t.Logf("%d gusts over %s, %d calls to the rack, %d of Omni", len(schedule), time.Since(began).Round(time.Second),
		len(s.sim.Calls()), len(s.omni.Calls()))
	s.calm()
	s.settle()
	s.clear()
}

// apply brings a gust.
func (s *storm) apply(g gust) {
	switch g.Kind {
	case gustAsk:
		for range g.Number {
			s.askOne()
		}
	case gustRemove:
		for range g.Number {
			s.removeOne(g)
		}
	case gustVanish:
		s.vanishOne(g)
	case gustRack:
		// What is to happen to something that is not there does not happen.
		_, _ = s.sim.AddFault(*g.Rack)

		if g.Rack.Event == simrack.EventProjectRenamed && s.renamed.IsZero() {
			s.renamed = time.Now().Add(5 * time.Minute)
		}
	case gustWrite:
		s.omni.Inject(*g.Omni)
	case gustCut:
		s.omni.CutStreams()
	case gustDrop:
		s.omni.DropConnections()
	case gustStale:
		s.omni.StaleBookmarks()
	case gustAway:
		if s.away.IsZero() {
			s.omni.Stop()
		}

		s.away = time.Now().Add(g.Lasts)
	case gustFactory:
		s.factoryFault.Store(int64(g.Number))
		s.factoryUntil.Store(time.Now().Add(g.Lasts).UnixNano())
	case gustKill:
		s.replicas[g.Number].kill(time.Now().Add(g.Lasts))
	case gustRestart:
		s.replicas[g.Number].end(s.bench)
		s.begin(g.Number)
	}
}

// tend ends what has lasted long enough.
func (s *storm) tend() {
	now := time.Now()

	if !s.away.IsZero() && now.After(s.away) {
		s.ok(s.omni.Start(s.t.Context()))
		s.away = time.Time{}
	}

	for i, r := range s.replicas {
		if !r.back.IsZero() && now.After(r.back) {
			s.begin(i)
		}
	}

	if !s.renamed.IsZero() && now.After(s.renamed) {
		s.rename()
	}
}

func (s *storm) rename() {
	_, _ = s.sim.AddFault(simrack.Fault{Event: simrack.EventProjectRenamed, Project: "demo-renamed", To: "demo"})
	s.renamed = time.Time{}
}

func (s *storm) askOne() {
	id := stormRequest(s.asked)

	s.mu.Lock()
	s.wanted[id] = true
	s.mu.Unlock()

	n := s.asked
	s.asked++

	s.ask(id, func(r *omnispecs.MachineRequestSpec) {
		// Three images, and now and then more disks.
		r.TalosVersion = []string{"1.13.5", "1.13.6", "1.13.7"}[n%3]

		if n%4 == 0 {
			r.ProviderData += "disks: [{size: 2}, {size: 3}]\n"
		}
	})
}

// chosen is one of the wanted requests.
func (s *storm) chosen(g gust) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	var all []string

	for id, ok := range s.wanted {
		if ok {
			all = append(all, id)
		}
	}

	if len(all) == 0 {
		return ""
	}

	slices.Sort(all)

	return all[int(g.After/time.Second)%len(all)]
}

func (s *storm) removeOne(g gust) {
	id := s.chosen(g)
	if id == "" {
		return
	}

	s.mu.Lock()
	delete(s.wanted, id)
	s.mu.Unlock()

	s.remove(id)
}

// vanishOne removes a request without asking anybody, as people do to whom it
// looks stuck.
func (s *storm) vanishOne(g gust) {
	id := s.chosen(g)
	if id == "" {
		return
	}

	s.mu.Lock()
	delete(s.wanted, id)
	s.vanished[id] = true
	s.mu.Unlock()

	ctx, md := s.t.Context(), infra.NewMachineRequest(id).Metadata()

	_, err := s.admin.Teardown(ctx, md)
	s.ok(err)

	for {
		r, err := s.admin.Get(ctx, md)
		if state.IsNotFoundError(err) || err == nil && r.Metadata().Finalizers().Empty() {
			break
		}

		s.ok(err)
		s.ok(s.admin.RemoveFinalizer(ctx, md, *r.Metadata().Finalizers()...))
	}

	_ = s.admin.Destroy(ctx, md)
}
