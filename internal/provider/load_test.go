package provider

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// How many machines come at once, and for how many hours they then rest, unless
// OIPO_LOAD and OIPO_LOAD_HOURS say it.
const (
	loadMachines = 24
	loadHours    = 1
)

// What the rack takes in these tests.
const (
	loadCreate  = time.Second
	loadStart   = 5 * time.Second
	loadCall    = 20 * time.Millisecond
	loadCreates = 4
	loadWorkers = 10
)

// tally counts calls by kind.
func tally(kinds []string, per int) string {
	counts := map[string]int{}
	for _, k := range kinds {
		counts[k]++
	}

	var b strings.Builder

	for _, k := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&b, " %s %.2f", k, float64(counts[k])/float64(per))
	}

	return b.String()
}

// rackKinds are the operations of the calls to the rack from the n-th on.
func (b *bench) rackKinds(n int) []string {
	var out []string
	for _, c := range b.sim.Calls()[n:] {
		out = append(out, c.Operation)
	}

	return out
}

// writesLog keeps the writes of Omni's resources as verb and type: Omni's own log of
// calls is too short for so many.
type writesLog struct {
	mu  sync.Mutex
	all []string
}

func (l *writesLog) note(_ int, name string) {
	verb, rest, _ := strings.Cut(name, " ")
	if !slices.Contains([]string{"Create", "Update", "Destroy", "Teardown", "TeardownAndDestroy"}, verb) {
		return
	}

	kind, _, _ := strings.Cut(rest, " ")
	kind, _, _ = strings.Cut(kind, ".")

	l.mu.Lock()
	defer l.mu.Unlock()

	l.all = append(l.all, verb+" "+kind)
}

// take answers what was noted, and begins anew.
func (l *writesLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()

	all := l.all
	l.all = nil

	return all
}

// steady are the writes of a daemon at rest: heartbeat, lease and run.
func steady(write string) bool {
	return slices.Contains([]string{"Update InfraProviderHealthStatuses", "Update Lease", "Update ImportRun"}, write)
}

// Rule: what bounds many machines that come at once is the rack's own time for
// creating them, as many at once as may be, in the order of asking, and nothing of
// ours: here time is fake, so that processors cost none of it. And machines at rest
// cost next to nothing.
func TestALoadIsBoundByTheRack(t *testing.T) { //nolint:paralleltest // it takes both processors
	n := numberIn(t, "OIPO_LOAD", loadMachines)
	hours := numberIn(t, "OIPO_LOAD_HOURS", loadHours)

	bubble(t, func(t *testing.T, b *bench) {
		var slow atomic.Bool

		b.hook(&b.before, func(operation string) {
			switch {
			case !slow.Load():
			case operation == "instance_create":
				time.Sleep(loadCreate)
			default:
				time.Sleep(loadCall)
			}
		})

		d := b.serve(leased, func(o *Options) { o.Concurrency, o.MaxCreates = loadWorkers, loadCreates })
		b.untilReady(d)
		b.pass(time.Minute)

		provisioned := make(chan time.Time, n)
		b.tellProvisioned(provisioned)
		slow.Store(true)

		var omni writesLog

		b.omni.SetHooks(omni.note, nil)

		rack, began := len(b.sim.Calls()), time.Now()

		for i := range n {
			b.ask(fmt.Sprintf("load-%05d", i))
			// Requests that are made at one instant have no order.
			time.Sleep(time.Millisecond)
		}

		var last time.Time
		for range n {
			last = <-provisioned
		}

		wall := last.Sub(began)
		bound := time.Duration((n+loadCreates-1)/loadCreates)*loadCreate + loadStart + 2*loadCall
		calls, writes := b.rackKinds(rack), omni.take()
		order := b.outOfOrder()

		t.Logf("%d machines run after %s, bound %s: %.3f times; created out of order by at most %d", n, wall, bound, wall.Seconds()/bound.Seconds(), order)
		t.Logf("rack calls for each: %.2f:%s", float64(len(calls))/float64(n), tally(calls, n))
		t.Logf("Omni writes for each: %.2f:%s", float64(len(writes))/float64(n), tally(writes, n))

		if wall.Seconds() > 1.3*bound.Seconds() {
			t.Errorf("all run after %s, the rack's own time is %s", wall, bound)
		}

		if order > loadWorkers {
			t.Errorf("a machine was created %d places from its own", order)
		}

		if len(writes) > 20*n {
			t.Errorf("%d writes to Omni for %d machines", len(writes), n)
		}

		slow.Store(false)
		b.pass(2 * time.Minute)

		rack = len(b.sim.Calls())
		omni.take()
		b.pass(time.Duration(hours) * time.Hour)

		calls, writes = b.rackKinds(rack), omni.take()
		minutes := 60 * hours

		t.Logf("at rest for %d h, rack calls each minute: %.2f:%s", hours, float64(len(calls))/float64(minutes), tally(calls, minutes))
		t.Logf("Omni writes each minute: %.2f:%s", float64(len(writes))/float64(minutes), tally(writes, minutes))

		if news := slices.DeleteFunc(writes, steady); len(news) > 0 {
			t.Errorf("writes of machines at rest:%s", tally(news, 1))
		}
	}, func(s *setup) {
		s.rack.Sleds = simrack.DefaultSleds(max(4, n/10))
		s.rack.Latencies = &simrack.Latencies{Start: loadStart, Stop: 3 * time.Second}
	})
}

// tellProvisioned tells when each request is first seen provisioned.
func (b *bench) tellProvisioned(to chan<- time.Time) {
	events := make(chan state.Event)
	b.ok(b.admin.WatchKind(b.t.Context(), infra.NewMachineRequestStatus("").Metadata(), events))

	go func() {
		seen := map[string]bool{}

		for {
			select {
			case <-b.t.Context().Done():
				return
			case e := <-events:
				st, ok := e.Resource.(*infra.MachineRequestStatus)
				if !ok || st.TypedSpec().Value.GetStage() != stageProvisioned || seen[st.Metadata().ID()] {
					continue
				}

				seen[st.Metadata().ID()] = true
				to <- time.Now()
			}
		}
	}()
}

// outOfOrder is how far from its place in the order of asking any instance was
// created.
func (b *bench) outOfOrder() int {
	b.t.Helper()

	requests, err := safe.StateListAll[*infra.MachineRequest](b.t.Context(), b.admin)
	b.ok(err)

	asked := map[string]int{}

	ids := make([]string, 0, requests.Len())
	for r := range requests.All() {
		ids = append(ids, r.Metadata().ID())
	}

	slices.Sort(ids)

	for i, id := range ids {
		asked[id] = i
	}

	instances, err := b.rack.ListInstances(b.t.Context(), b.project.Id)
	b.ok(err)

	slices.SortFunc(instances, func(x, y oxide.Instance) int { return x.TimeCreated.Compare(*y.TimeCreated) })

	most := 0

	for rank, i := range instances {
		off := rank - asked[string(i.Name)]
		most = max(most, off, -off)
	}

	return most
}
