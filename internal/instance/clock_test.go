package instance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// apart are clocks of two replicas, by how much the first one's is ahead of the
// second one's.
func apart() map[string]time.Duration {
	return map[string]time.Duration{
		"equal": 0, "ahead by minutes": 10 * time.Minute, "ahead by a day": 24 * time.Hour, "behind by minutes": -10 * time.Minute,
	}
}

// Invariant: no clocks are compared. A replica dies with its create call on the
// way and another one, whose clock shows something else, tears the request down:
// the settling time passes by its own clock, no shorter and no longer.
func TestSettlingDoesNotCompareClocks(t *testing.T) {
	t.Parallel()

	for name, ahead := range apart() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)

			for what, stored := range map[string]func(*specs.InstanceSpec, time.Time){
				"an open attempt": func(s *specs.InstanceSpec, at time.Time) {
					s.Create = &specs.Attempt{At: timestamppb.New(at), Count: 1}
				},
				"a lost answer": func(s *specs.InstanceSpec, at time.Time) {
					s.UnsureCreate = timestamppb.New(at)
					s.Create = &specs.Attempt{At: timestamppb.New(at), Count: 1, Failed: true}
				},
			} {
				spec := b.planned("r1")
				stored(spec, b.now.Add(ahead))

				b.m = b.machines()
				began := b.now

				_, err := b.drive(spec, b.m.Remove)
				b.ok(err)

				if waited := b.now.Sub(began); waited < 2*time.Minute || waited > 3*time.Minute {
					t.Errorf("%s: settled after %s", what, waited)
				}
			}
		})
	}
}

// What is over by all clocks is not waited for.
func TestAnOldLossHoldsNoTeardownUp(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	spec.UnsureCreate = timestamppb.New(b.now.Add(-24 * time.Hour))
	began := b.now

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)

	if waited := b.now.Sub(began); waited > 10*time.Second {
		t.Errorf("the teardown took %s", waited)
	}
}

// A try that was stored by a clock ahead of ours is made again now, and not when
// our clock gets there.
func TestATryOfAClockThatWasAheadIsNotWaitedFor(t *testing.T) {
	t.Parallel()

	tomorrow := timestamppb.New(time.Now().Add(24 * time.Hour))

	for name, attempt := range map[string]*specs.Attempt{
		"refused":         {At: tomorrow, Count: 3, Failed: true, LastError: "full"},
		"to be mended":    {At: tomorrow, Count: 3, Failed: true, Mend: true, LastError: "wrong"},
		"open":            {At: tomorrow, Count: 3},
		"open and recent": {At: timestamppb.New(time.Now()), Count: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)
			spec := b.planned("r1")
			spec.Create = attempt
			spec.Plan.SetGroup = &specs.SetGroupPlan{Set: "workers", Name: "workers-x", Policy: "allow"}
			spec.SetGroupCreate = &specs.Attempt{At: tomorrow, Count: 3, LastError: "busy"}
			began := b.now

			_, err := b.drive(spec, b.create)
			b.ok(err)

			spec.Start = &specs.Attempt{At: tomorrow, Count: 3, LastError: "full"}

			_, err = b.drive(spec, b.m.Start)
			b.ok(err)

			if waited := b.now.Sub(began); waited > time.Minute {
				t.Errorf("running after %s", waited)
			}
		})
	}
}

// Invariant: an attempt is stored right before its call, by the process that makes
// it. One that an earlier process has stored is not called under: nobody would
// know from when a teardown has to count.
func TestTheAttemptOfAnotherProcessIsNotCalledUnder(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	b.storing(b.m.stampAttempt(t.Context(), spec))

	b.m = b.machines()
	b.storing(b.m.Create(t.Context(), spec, "join config"))

	if n := b.sim.CallCount("instance_create"); n != 0 || spec.GetCreate().GetCount() != 2 || spec.GetUnsureCreate() == nil {
		t.Errorf("%d calls; the attempt is %v, unsure %v", n, spec.GetCreate(), spec.GetUnsureCreate())
	}
}

// A start that was refused as invalid too often is for a person to mend, also when
// the clock was set back meanwhile.
func TestAStartIsStillRefusedAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)
	b.fault(simrack.Fault{
		Operation: "instance_start", Action: simrack.ActionError, Status: 400, Code: "InvalidRequest", Message: "groups contradict",
	})

	var m *Mend

	for range 10 {
		_, err = b.drive(spec, b.m.Start)
		b.pass(-time.Hour)

		if errors.As(err, &m) {
			break
		}
	}

	if m == nil || !strings.Contains(m.Reason, "groups contradict") {
		t.Errorf("got %v", err)
	}
}
