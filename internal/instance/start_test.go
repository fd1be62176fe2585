package instance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// Invariant: started means seen running.
func TestAStartThatDoesNotFitIsExplainedAndTriedAgain(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)

	b.fault(simrack.Fault{
		Operation: "instance_start", Count: 4, Action: simrack.ActionError, Status: 507, Code: "InsufficientCapacity",
		Message: "Insufficient capacity: Failed to place instance: Could not find any valid sled",
	})

	reasons, err := b.drive(spec, b.m.Start)
	b.ok(err)

	if !strings.Contains(reasons[0], "Failed to place instance") {
		t.Errorf("first reason %q", reasons[0])
	}

	if i := must(b.rack.ViewInstance(t.Context(), spec.GetInstanceId()))(t); i.RunState != oxide.InstanceStateRunning || spec.GetRunningSince() == nil {
		t.Errorf("instance is %s, state %v", i.RunState, spec)
	}

	if n := b.sim.CallCount("instance_start"); n != 5 {
		t.Errorf("%d start calls", n)
	}
}

func TestAWokenRequestDoesNotStartMoreOften(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)

	b.fault(simrack.Fault{Operation: "instance_start", Action: simrack.ActionError, Status: 507, Message: "Insufficient capacity: x"})

	for range 20 {
		if _, ok := AsWait(b.m.Start(t.Context(), spec)); !ok {
			t.Fatal("no wait")
		}
	}

	if n := b.sim.CallCount("instance_start"); n != 1 {
		t.Errorf("%d start calls without time passing", n)
	}
}

func TestAFailedInstanceIsStartedAgain(t *testing.T) {
	t.Parallel()

	b := newBench(t, func(c *simrack.Config) {
		l := simrack.DefaultLatencies()
		l.RestartCooldown = time.Hour * 1000
		c.Latencies = &l
	})
	spec := b.made("r1")
	spec.RunningSince = nil
	b.ok(b.sim.Crash(spec.GetInstanceId()))

	_, err := b.drive(spec, b.m.Start)
	b.ok(err)
}

func TestAnInstanceThatVanishedIsProvenGoneAndMadeAgain(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)

	first := spec.GetInstanceId()
	b.ok(b.rack.DeleteInstance(t.Context(), first))

	if _, err = b.drive(spec, b.m.Start); !errors.Is(err, ErrVanished) {
		t.Fatalf("got %v", err)
	}

	b.storing(b.m.Forget(t.Context(), spec))
	b.wantLeft(0, 0)

	if spec.GetInstanceId() != "" || spec.GetIncarnation() != 1 {
		t.Errorf("state %v", spec)
	}

	_, err = b.drive(spec, b.create)
	b.ok(err)
	b.wantLeft(1, 3)

	if spec.GetInstanceId() == first {
		t.Error("the same ID")
	}
}

// Invariant: gone is proved. A role that was lost looks like absence.
func TestALostRoleIsNotAVanishedInstance(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)

	b.sim.SetToken(simrack.Token{Value: simrack.DefaultToken, User: "provider", SiloRole: simrack.SiloNone})

	for range 5 {
		var m *Mend
		if err := b.m.Start(t.Context(), spec); !errors.As(err, &m) {
			t.Fatalf("got %v", err)
		}

		b.pass(time.Minute)
	}

	b.sim.SetToken(simrack.Token{Value: simrack.DefaultToken, User: "provider"})

	_, err = b.drive(spec, b.m.Start)
	b.ok(err)
	b.wantLeft(1, 3)
}
