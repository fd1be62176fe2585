package instance

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// calls counts the calls that f makes, by their operations.
func (b *bench) calls(f func()) map[string]int {
	b.t.Helper()

	before := len(b.sim.Calls())

	f()

	counts := map[string]int{}
	for _, c := range b.sim.Calls()[before:] {
		counts[c.Operation]++
	}

	return counts
}

func total(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}

	return n
}

// A teardown alone costs two looks, a stop, a delete, a list of disks and one call
// for each disk.
func TestATeardownCostsFiveCallsAndOneForEachDisk(t *testing.T) {
	t.Parallel()

	// The rack's own time is real: a stop that takes none is over at the next look.
	b := newBench(t, func(c *simrack.Config) {
		l := simrack.DefaultLatencies()
		l.Stop = 0
		c.Latencies = &l
	})
	spec := b.made("r1")
	began := b.now

	var reasons []string

	calls := b.calls(func() {
		var err error

		reasons, err = b.drive(spec, b.m.Remove)
		b.ok(err)
	})

	want := map[string]int{"instance_view": 2, "instance_stop": 1, "instance_delete": 1, "disk_list": 1, "disk_delete": 3}
	if n := total(calls); !maps.Equal(calls, want) {
		t.Errorf("%d calls for three disks: %v, waits %q", n, calls, reasons)
	}

	if took := b.now.Sub(began); took > 6*time.Second {
		t.Errorf("the teardown took %s", took)
	}
}

// Whatever wakes a teardown early costs no call.
func TestAWokenTeardownAsksNothing(t *testing.T) {
	t.Parallel()

	b := newBench(t, func(c *simrack.Config) {
		l := simrack.DefaultLatencies()
		l.Stop = time.Hour
		c.Latencies = &l
	})
	spec := b.made("r1")

	told, ok := AsWait(b.m.Remove(t.Context(), spec))
	if !ok {
		t.Fatal("no wait")
	}

	calls := b.calls(func() {
		for range 20 {
			again, ok := AsWait(b.m.Remove(t.Context(), spec))
			if !ok || again.Reason != told.Reason || again.After > told.After {
				t.Fatalf("first %v, then %v", told, again)
			}

			b.pass(100 * time.Millisecond)
		}
	})

	if n := total(calls); n != 0 {
		t.Errorf("calls %v", calls)
	}
}

// removeAtOnce tears requests down side by side, each when it is due.
func (b *bench) removeAtOnce(all []*specs.InstanceSpec) {
	b.t.Helper()

	due := map[*specs.InstanceSpec]time.Time{}
	for _, spec := range all {
		due[spec] = b.now
	}

	for range 1000 {
		if len(due) == 0 {
			return
		}

		for spec, at := range due {
			if b.now.Before(at) {
				continue
			}

			err := b.m.Remove(b.t.Context(), spec)
			if w, ok := AsWait(err); ok {
				due[spec] = b.now.Add(w.After)

				continue
			}

			b.ok(err)
			delete(due, spec)
		}

		b.pass(500 * time.Millisecond)

		// The rack's own time is real, if a thousand times as fast.
		select {
		case <-b.t.Context().Done():
		case <-time.After(500 * time.Microsecond):
		}
	}

	b.t.Fatalf("%d teardowns do not end", len(due))
}

// Where many stop at once a few lists tell of all of them, also of one that was
// removed by hand meanwhile.
func TestManyStopsShareTheirLooks(t *testing.T) {
	t.Parallel()

	b := newBench(t, func(c *simrack.Config) {
		l := simrack.DefaultLatencies()
		l.Stop = 30 * time.Second
		c.Latencies = &l
		c.Sleds = simrack.DefaultSleds(4)
	})

	const many = 12

	var all []*specs.InstanceSpec

	for i := range many {
		all = append(all, b.made("r"+strings.Repeat("i", i+1)))
	}

	began := b.now
	calls := b.calls(func() { b.removeAtOnce(all) })

	b.wantLeft(0, 0)

	looks := calls["instance_view"] + calls["instance_list"]
	t.Logf("%d teardowns in %s: %d looks, %v", many, b.now.Sub(began), looks, calls)

	if looks > 2*many {
		t.Errorf("%d looks for %d teardowns", looks, many)
	}

	if calls["instance_stop"] > 2*many || calls["instance_delete"] != many {
		t.Errorf("calls %v", calls)
	}
}

// Invariant: teardown always ends: many whose create had no answer, so that nothing
// may be taken for known, and which wait for the same turn, do not take it from each
// other for ever, whoever has deleted their instances.
func TestManyUnsureTeardownsEnd(t *testing.T) {
	t.Parallel()

	for name, byHand := range map[string]bool{"deleted by us": false, "deleted by hand": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t, func(c *simrack.Config) { c.Sleds = simrack.DefaultSleds(4) })

			var all []*specs.InstanceSpec

			for i := range 8 {
				spec := b.made("r" + strings.Repeat("i", i+1))
				all = append(all, spec)

				if byHand {
					b.removeByHand(spec)
				}
			}

			for _, spec := range all {
				spec.UnsureCreate = timestamppb.New(b.now)
			}

			// Somebody else's disks take their time, until all are in line.
			for ok := false; !ok; {
				ok, _, _ = b.m.deletes.Ask("another", b.now)
			}

			for range 400 {
				if _, _, waiting := b.m.deletes.Load(); waiting == len(all) {
					break
				}

				for _, spec := range all {
					if w, ok := AsWait(b.m.Remove(b.t.Context(), spec)); !ok {
						b.t.Fatal(w)
					}
				}

				b.pass(time.Second)
				time.Sleep(time.Millisecond) // the rack's own time is real
			}

			if _, _, waiting := b.m.deletes.Load(); waiting != len(all) {
				b.t.Fatalf("%d of %d wait to delete their disks", waiting, len(all))
			}

			b.m.deletes.Done("another", time.Second)

			b.removeAtOnce(all)
			b.wantLeft(0, 0)
		})
	}
}

// removeByHand stops and deletes the instance of a request, whose disks stay.
func (b *bench) removeByHand(spec *specs.InstanceSpec) {
	b.t.Helper()

	id := spec.GetInstanceId()
	b.ok(b.rack.StopInstance(b.t.Context(), id))

	for range 1000 {
		i, err := b.rack.ViewInstance(b.t.Context(), id)
		b.ok(err)

		if i.RunState == oxide.InstanceStateStopped {
			b.ok(b.rack.DeleteInstance(b.t.Context(), id))

			return
		}

		time.Sleep(time.Millisecond)
	}

	b.t.Fatal("the instance does not stop")
}

// Rule B48: the disks are remembered apart from the instance. Its deletion works,
// that of a disk fails twice, and each call is made by another process.
func TestB48DisksAreDeletedAfterTheirInstanceIsGone(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.made("r1")
	b.fault(simrack.Fault{Operation: "disk_delete", Count: 2, Action: simrack.ActionError, Status: 500})

	_, err := b.drive(spec, func(ctx context.Context, spec *specs.InstanceSpec) error {
		b.m = b.machines()

		return b.m.Remove(ctx, spec)
	})
	b.ok(err)
	b.wantLeft(0, 0)
}

// Rule B51: an instance stops for twelve minutes, or takes no notice of its stops.
// No worker is blocked, the stop is sent again only where it had no effect, and
// nothing is deleted before it is stopped; the reason is told.
func TestB51AStopThatTakesLongIsAwaited(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		stop     time.Duration
		lost     int
		min, max int
		reason   string
	}{
		"twelve minutes of stopping": {12 * time.Minute, 0, 1, 1, "the instance is stopping"},
		"stops without an effect":    {3 * time.Second, 6, 7, 7, "the instance was told to stop and is running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t, func(c *simrack.Config) {
				l := simrack.DefaultLatencies()
				l.Stop = tc.stop
				c.Latencies = &l
			})
			spec := b.made("r1")

			if tc.lost > 0 {
				b.fault(simrack.Fault{Operation: "instance_stop", Count: tc.lost, Action: simrack.ActionLostStop})
			}

			var reasons []string

			calls := b.calls(func() {
				var err error

				reasons, err = b.drive(spec, b.m.Remove)
				b.ok(err)
			})

			b.wantLeft(0, 0)

			if n := calls["instance_stop"]; n < tc.min || n > tc.max || calls["instance_delete"] != 1 {
				t.Errorf("calls %v", calls)
			}

			if !strings.Contains(strings.Join(reasons, "\n"), tc.reason) {
				t.Errorf("reasons %q", reasons)
			}
		})
	}
}

// Rule B53: a stop that answers 400 or 500 is not final. The state is read again
// each time, and an instance that has failed meanwhile is deleted.
func TestB53AStopThatIsRefusedIsNotFinal(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	// The rack starts no machine again that has failed.
	spec.Plan.AutoRestartPolicy = "never"
	b.running(spec)
	b.fault(simrack.Fault{Operation: "instance_stop", Count: 3, Action: simrack.ActionError, Status: 400, Code: "InvalidRequest", Message: "Failed Dependency"})
	b.fault(simrack.Fault{Operation: "instance_stop", Action: simrack.ActionError, Status: 500})

	crashed := false

	_, err := b.drive(spec, func(ctx context.Context, spec *specs.InstanceSpec) error {
		if b.sim.CallCount("instance_stop") == 5 && !crashed {
			crashed = true

			b.ok(b.sim.Crash(spec.GetInstanceId()))
		}

		return b.m.Remove(ctx, spec)
	})
	b.ok(err)
	b.wantLeft(0, 0)

	if !crashed {
		t.Error("it ended before it failed")
	}
}

// Rule B54: right after its instance is deleted a disk may still be attached, its
// deletion may answer 500 and be done, or fail and bring the disk back under
// another name. Data disks and the boot disk alike.
func TestB54DisksThatLingerAreDeleted(t *testing.T) {
	t.Parallel()

	for name, f := range map[string]simrack.Fault{
		"still attached":   {Operation: "disk_delete", Count: 5, Action: simrack.ActionError, Status: 400, Code: "InvalidRequest", Message: "disk is attached"},
		"500 and done":     {Operation: "disk_delete", Count: 3, Action: simrack.ActionErrorAfter, Status: 500},
		"comes back":       {Operation: "disk_delete", Count: 3, Action: simrack.ActionFaultDelete},
		"answers are lost": {Operation: "disk_delete", Count: 3, Action: simrack.ActionLoseAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)
			spec := b.made("r1")
			b.fault(f)

			_, err := b.drive(spec, b.m.Remove)
			b.ok(err)
			b.wantLeft(0, 0)
		})
	}
}

// A machine that has failed for good, or that the rack starts again by itself, is
// taken down like any other.
func TestAMachineThatFailsIsRemovedInWhateverStateItIs(t *testing.T) {
	t.Parallel()

	for name, fail := range map[string]func(b *bench, id string){
		"crashed":      func(b *bench, id string) { b.ok(b.sim.Crash(id)) },
		"switched off": func(b *bench, id string) { b.ok(b.sim.GuestPowerOff(id)) },
		"rebooting":    func(b *bench, id string) { b.ok(b.sim.GuestReboot(id)) },
		"migrating":    func(b *bench, id string) { b.ok(b.sim.Migrate(id)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t, func(c *simrack.Config) { c.Sleds = simrack.DefaultSleds(2) })
			spec := b.planned("r1")
			// An instance with a local disk stays where it is.
			spec.Plan.Disks = spec.Plan.Disks[:1]
			b.running(spec)
			fail(b, spec.GetInstanceId())

			_, err := b.drive(spec, b.m.Remove)
			b.ok(err)
			b.wantLeft(0, 0)

			// One may come while the rack is still at it.
			if n := b.sim.CallCount("instance_delete"); n < 1 || n > 2 {
				t.Errorf("%d deletes", n)
			}
		})
	}
}
