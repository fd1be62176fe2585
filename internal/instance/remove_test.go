package instance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

func TestARunningMachineIsRemovedWithAllItsDisks(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.made("r1")
	other := b.made("r2")
	calls := len(b.sim.Calls())

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)
	b.wantLeft(1, 3)

	if _, err := b.rack.ViewInstance(t.Context(), other.GetInstanceId()); err != nil {
		t.Errorf("the other machine: %v", err)
	}

	if s, _ := b.sim.Inspect(other.GetInstanceId()); s.NATLost {
		t.Error("the other machine lost its network")
	}

	t.Logf("%d rack calls for one teardown with three disks", len(b.sim.Calls())-calls-4)

	// Again, as after a restart: there is nothing to do, and that is no error.
	_, err = b.drive(spec, b.m.Remove)
	b.ok(err)
}

// Invariant: a running instance is never deleted: the rack refuses, and cuts
// its network all the same.
func TestDeleteIsNeverSentToARunningInstance(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.made("r1")
	b.fault(simrack.Fault{Operation: "instance_stop", Count: 3, Action: simrack.ActionLostStop})

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)
	b.wantLeft(0, 0)

	if n := b.sim.CallCount("instance_delete"); n != 1 {
		t.Errorf("%d delete calls", n)
	}

	if n := b.sim.CallCount("instance_stop"); n != 4 {
		t.Errorf("%d stop calls, three of which were lost", n)
	}
}

func TestTeardownGoesOnThroughErrors(t *testing.T) {
	t.Parallel()

	for name, faults := range map[string][]simrack.Fault{
		"stop answers 400 and 500": {
			{Operation: "instance_stop", Count: 3, Action: simrack.ActionError, Status: 400, Code: "InvalidRequest", Message: "Failed Dependency"},
			{Operation: "instance_stop", Count: 2, Action: simrack.ActionError, Status: 500},
		},
		"stop answers 502 and 504 of a dead sled": {
			{Operation: "instance_stop", Count: 1, Action: simrack.ActionError, Status: 502, Code: "Internal"},
			{Operation: "instance_stop", Count: 1, Action: simrack.ActionError, Status: 504, Code: "Internal"},
		},
		"instance delete loses its answer": {{Operation: "instance_delete", Count: 1, Action: simrack.ActionLoseAnswer}},
		"disk delete answers 500":          {{Operation: "disk_delete", Count: 2, Action: simrack.ActionError, Status: 500}},
		"disk delete answers 500 and is done": {
			{Operation: "disk_delete", Count: 2, Action: simrack.ActionErrorAfter, Status: 500},
		},
		"maintenance": {
			{Operation: "instance_view", Count: 2, Action: simrack.ActionError, Status: 503, Code: "ServiceNotAvailable"},
			{Operation: "disk_list", Count: 2, Action: simrack.ActionReset},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)
			spec := b.made("r1")

			for _, f := range faults {
				b.fault(f)
			}

			// A plain error of the rack is tried again by the SDK.
			for {
				_, err := b.drive(spec, b.m.Remove)
				if err == nil {
					break
				}

				b.pass(15 * time.Second)
			}

			b.wantLeft(0, 0)
		})
	}
}

func TestWhatWasRemovedByHandCountsAsDone(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.made("r1")

	b.ok(b.rack.StopInstance(t.Context(), spec.GetInstanceId()))

	for must(b.rack.ViewInstance(t.Context(), spec.GetInstanceId()))(t).RunState != oxide.InstanceStateStopped {
		time.Sleep(time.Millisecond)
	}

	b.ok(b.rack.DeleteInstance(t.Context(), spec.GetInstanceId()))
	b.ok(b.rack.DeleteDisk(t.Context(), spec.GetDisks()[1].GetId()))

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)
	b.wantLeft(0, 0)
}

// Invariant: nothing foreign is touched: neither another instance of the same
// name, nor a disk that a user attached to ours.
func TestAnotherInstanceOfTheSameNameIsNotRemoved(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)
	b.ok(b.rack.DeleteInstance(t.Context(), spec.GetInstanceId()))

	theirs := b.foreign("r1", "made by hand in its place")

	_, err = b.drive(spec, b.m.Remove)
	b.ok(err)

	if _, err := b.rack.ViewInstance(t.Context(), theirs.Id); err != nil {
		t.Errorf("theirs: %v", err)
	}

	b.wantLeft(1, 0)
}

func TestADiskThatAUserAttachedStays(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)

	theirs := b.disk("precious", "a user's data")
	sdk := must(oxide.NewClient(oxide.WithHost(b.rack.Host()), oxide.WithToken(simrack.DefaultToken)))(t)
	must(sdk.InstanceDiskAttach(t.Context(), oxide.InstanceDiskAttachParams{
		Instance: oxide.NameOrId(spec.GetInstanceId()), Body: &oxide.DiskPath{Disk: oxide.NameOrId(theirs.Id)},
	}))(t)

	_, err = b.drive(spec, b.m.Remove)
	b.ok(err)

	if d := must(b.rack.ViewDisk(t.Context(), theirs.Id))(t); d.State.State() != oxide.DiskStateStateDetached {
		t.Errorf("the user's disk is %s", d.State.State())
	}

	b.wantLeft(0, 1)
}

// Invariant: nothing leaks: a create without an answer may still be carried out
// after the request was deleted.
func TestATeardownOutlastsAnUnsureCreate(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.fault(simrack.Fault{
		Operation: "instance_create", Count: 1, Action: simrack.ActionCommitLate, Delay: simrack.Duration(50 * time.Second),
	})

	spec := b.planned("r1")
	spec.Create = nil

	// Up to the lost create call, and not further.
	for spec.GetUnsureCreate() == nil {
		if _, ok := AsWait(b.create(t.Context(), spec)); !ok {
			t.Fatal("no wait")
		}
	}

	reasons, err := b.drive(spec, b.m.Remove)
	b.ok(err)
	b.wantLeft(0, 0)

	if !strings.Contains(strings.Join(reasons, "\n"), "without an answer") {
		t.Errorf("reasons %q", reasons)
	}

	if n := b.sim.CallCount("instance_delete"); n != 1 {
		t.Errorf("%d instances were removed: the late one was missed", n)
	}
}

// Invariant: nobody waits for somebody else's work: starts that hang hold few
// workers, and what can not be deleted is tried ever less often.
func TestStartsThatHangHoldFewWorkers(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.m.cfg.MaxCreates = 2
	b.m.starts = NewPlaces(2, time.Second)

	var all []*specs.InstanceSpec

	for _, id := range []string{"r1", "r2", "r3", "r4", "r5"} {
		spec := b.planned(id)

		_, err := b.drive(spec, b.create)
		b.ok(err)

		all = append(all, spec)
	}

	b.fault(simrack.Fault{Operation: "instance_start", Action: simrack.ActionHang})

	ctx, cancel := context.WithCancel(t.Context())

	var (
		group sync.WaitGroup
		free  atomic.Int32
	)

	for _, spec := range all {
		group.Go(func() {
			if w, ok := AsWait(b.m.Start(ctx, spec)); ok && strings.Contains(w.Reason, "in line") {
				free.Add(1)
			}
		})
	}

	deadline := time.Now().Add(10 * time.Second)
	for free.Load() < 3 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}

	if free.Load() != 3 {
		t.Errorf("%d of five requests were told to come back", free.Load())
	}

	cancel()
	group.Wait()
}

func TestADiskThatCanNotBeDeletedIsTriedEverLess(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.made("r1")
	b.fault(simrack.Fault{Operation: "disk_delete", Action: simrack.ActionError, Status: 500})

	began := b.now

	var reason string

	for b.now.Sub(began) < time.Hour {
		w, ok := AsWait(b.m.Remove(t.Context(), spec))
		if !ok {
			t.Fatal("the teardown ended")
		}

		reason = w.Reason
		b.pass(max(w.After, 10*time.Millisecond))

		select {
		case <-t.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}

	if n := b.sim.CallCount("disk_delete"); n > 3*70 {
		t.Errorf("%d delete calls for three disks in an hour", n)
	}

	if !strings.Contains(reason, "deleting disk") {
		t.Errorf("the reason is %q", reason)
	}
}

func TestATeardownAfterAKilledCreateSettlesToo(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	// The attempt was stored and the process died: nobody knows whether the call
	// went out.
	b.storing(b.m.stampAttempt(t.Context(), spec))

	began := b.now

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)

	if waited := b.now.Sub(began); waited < 2*time.Minute || waited > 3*time.Minute {
		t.Errorf("settled after %s", waited)
	}
}

func TestAKnownOutcomeNeedsNoSettling(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	spec.Plan.Nics[0].SubnetName = "missing"

	_, _ = b.drive(spec, b.create)
	began := b.now

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)

	if waited := b.now.Sub(began); waited > 10*time.Second {
		t.Errorf("the teardown of a machine that never was took %s", waited)
	}
}

// Invariant: gone is proved. While the role is lost a teardown does not end, and
// it ends when the role is back.
func TestALostRoleEndsNoTeardown(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.made("r1")

	b.sim.SetToken(simrack.Token{Value: simrack.DefaultToken, User: "provider", SiloRole: simrack.SiloNone})

	for range 10 {
		if err := b.m.Remove(t.Context(), spec); err == nil {
			t.Fatal("a teardown ended while the machine runs")
		}

		b.pass(time.Minute)
	}

	b.sim.SetToken(simrack.Token{Value: simrack.DefaultToken, User: "provider"})

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)
	b.wantLeft(0, 0)
}

func TestADeletedProjectEndsTheTeardown(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	spec.Plan.ProjectId, spec.InstanceId = "7d0f2c5e-3a43-4d8e-9a51-0f3a3c1b2e90", "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11"
	spec.RunningSince = timestamppb.Now()

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)

	// Without the right to see all projects nobody can tell it from a lost role.
	b.sim.SetToken(simrack.Token{
		Value: simrack.DefaultToken, User: "provider", SiloRole: simrack.SiloNone,
		ProjectRoles: map[string]simrack.Role{"demo": simrack.RoleAdmin},
	})

	var m *Mend
	if err := b.m.Remove(t.Context(), spec); !errors.As(err, &m) || !strings.Contains(m.Reason, "has lost its role") {
		t.Errorf("got %v", err)
	}
}
