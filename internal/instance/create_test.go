package instance

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

func TestAnInstanceIsMadeStoppedAndMarked(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.ok(b.sim.AddSSHKey("provider", "laptop", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKtestkeytestkeytestkeytestkeytestkey a@b"))

	spec := b.planned("talos-workers-bcdfgh")

	_, err := b.drive(spec, b.create)
	b.ok(err)

	i := must(b.rack.ViewInstance(t.Context(), spec.GetInstanceId()))(t)
	if i.RunState != oxide.InstanceStateStopped || string(i.Name) != "talos-workers-bcdfgh" || i.Hostname != "talos-workers-bcdfgh" {
		t.Errorf("instance %s, hostname %s, %s", i.Name, i.Hostname, i.RunState)
	}

	mark, ok := naming.Parse(i.Description)
	if !ok || mark.Owner != testOwner || mark.Provider != testProvider || mark.Kind != naming.KindInstance ||
		mark.Key != naming.RequestKey("talos-workers-bcdfgh") {
		t.Errorf("description %q", i.Description)
	}

	if len(spec.GetDisks()) != 3 || spec.GetCreate() != nil || spec.GetUnsureCreate() != nil {
		t.Errorf("state %v", spec)
	}

	for _, d := range must(b.rack.ListDisks(t.Context(), b.project.Id))(t) {
		if m, ok := naming.Parse(d.Description); !ok || m.Key != mark.Key {
			t.Errorf("disk %s is described as %q", d.Name, d.Description)
		}
	}

	// The keys of the token's user must not end up in the guest.
	sdk := must(oxide.NewClient(oxide.WithHost(b.rack.Host()), oxide.WithToken(simrack.DefaultToken)))(t)
	if keys := must(sdk.InstanceSshPublicKeyListAllPages(t.Context(), oxide.InstanceSshPublicKeyListParams{
		Instance: oxide.NameOrId(i.Id),
	}))(t); len(keys) != 0 {
		t.Errorf("the guest gets %d keys", len(keys))
	}

	if n := b.sim.CallCount("instance_create"); n != 1 {
		t.Errorf("%d create calls", n)
	}
}

// Invariant: one request, at most one instance, wherever the process dies.
func TestDyingAnywhereInACreateMakesOneInstance(t *testing.T) {
	t.Parallel()

	for dieAfter := range 6 {
		b := newBench(t)
		spec := b.planned("r1")
		stored := proto.CloneOf(spec)

		for call := 0; ; call++ {
			err := b.create(t.Context(), spec)

			if call == dieAfter {
				// The process dies: what this call changed is not stored.
				spec = stored
				b.m = b.machines()

				continue
			}

			stored = proto.CloneOf(spec)

			if err == nil {
				break
			}

			if _, ok := AsWait(err); !ok || call > 50 {
				t.Fatalf("dying after call %d: %v", dieAfter, err)
			}
		}

		b.wantLeft(1, 3)
	}
}

func TestALostAnswerIsLookedUp(t *testing.T) {
	t.Parallel()

	for name, fault := range map[string]simrack.Fault{
		"done and lost":        {Action: simrack.ActionLoseAnswer},
		"done and answers 500": {Action: simrack.ActionErrorAfter},
		"done late":            {Action: simrack.ActionCommitLate, Delay: simrack.Duration(20 * time.Second)},
		"never done":           {Action: simrack.ActionReset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)
			fault.Operation, fault.Count = "instance_create", 1
			b.fault(fault)

			spec := b.planned("r1")

			_, err := b.drive(spec, b.create)
			b.ok(err)
			b.wantLeft(1, 3)

			if len(spec.GetDisks()) != 3 {
				t.Errorf("disks %v", spec.GetDisks())
			}
		})
	}
}

// Invariant: nothing foreign is touched.
func TestAStrangersInstanceWithOurNameIsLeftAlone(t *testing.T) {
	t.Parallel()

	otherMark := naming.Mark{Owner: "zzzzzzzzzzzzzzzzzzzzzzzzzz", Provider: testProvider, Kind: naming.KindInstance, Key: naming.RequestKey("r1"), Run: "0123abcd"}
	otherProvider := naming.Mark{Owner: testOwner, Provider: "another", Kind: naming.KindInstance, Key: naming.RequestKey("r1"), Run: "0123abcd"}

	for name, description := range map[string]string{
		"by hand": "my database", "another owner": otherMark.Describe("x"), "another provider": otherProvider.Describe("x"),
		"a broken mark": otherMark.Describe("x") + ".",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)
			theirs := b.foreign("r1", description)
			spec := b.planned("r1")

			_, err := b.drive(spec, b.create)

			m, ok := errors.AsType[*Mend](err)
			if !ok || !strings.Contains(m.Reason, `an instance named "r1" that is not ours`) {
				t.Errorf("got %v", err)
			}

			_, err = b.drive(spec, b.m.Remove)
			b.ok(err)

			if got := must(b.rack.ViewInstance(t.Context(), theirs.Id))(t); got.RunState != oxide.InstanceStateStopped {
				t.Errorf("theirs is %s", got.RunState)
			}

			b.wantLeft(1, 0)
		})
	}
}

// An instance with our mark is taken for ours after a lost answer only if it is
// what was planned: another one is left to a person, as it is.
func TestAnInstanceThatIsNotAsPlannedIsNotAdopted(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*specs.Plan){
		"CPUs":   func(p *specs.Plan) { p.Cpus++ },
		"memory": func(p *specs.Plan) { p.MemoryBytes += 1 << 30 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)
			made := b.planned("r1")
			_, err := b.drive(made, b.create)
			b.ok(err)

			spec := b.planned("r1")
			change(spec.Plan)

			_, err = b.drive(spec, b.create)
			if m, ok := errors.AsType[*Mend](err); !ok || !strings.Contains(m.Reason, "bears our mark but not its plan's size") {
				t.Errorf("got %v", err)
			}

			if spec.GetInstanceId() != "" {
				t.Error("it was adopted")
			}

			b.wantLeft(1, 3)
		})
	}
}

func TestALeftOverDiskInTheWayIsRemovedOnlyIfOurs(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	b.disk(spec.GetPlan().GetBootDisk().GetName(), b.m.mark("r1", naming.KindBoot).Describe("left over"))

	_, err := b.drive(spec, b.create)
	b.ok(err)
	b.wantLeft(1, 3)

	theirs := b.disk(naming.Disk("data0", "r2"), "not ours")
	spec = b.planned("r2")

	_, err = b.drive(spec, b.create)
	if m, ok := errors.AsType[*Mend](err); !ok || !strings.Contains(m.Reason, "disk named") {
		t.Errorf("got %v", err)
	}

	_, err = b.drive(spec, b.m.Remove)
	b.ok(err)

	if _, err := b.rack.ViewDisk(t.Context(), theirs.Id); err != nil {
		t.Errorf("theirs: %v", err)
	}
}

func TestAQuotaIsWaitedFor(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.fault(simrack.Fault{
		Operation: "instance_create", Count: 5, Action: simrack.ActionError, Status: 507, Code: "InsufficientCapacity",
		Message: "Insufficient capacity: Storage Limit Exceeded: not enough storage",
	})

	spec := b.planned("r1")
	began := b.now

	reasons, err := b.drive(spec, b.create)
	b.ok(err)
	b.wantLeft(1, 3)

	if !strings.Contains(strings.Join(reasons, "\n"), "Storage Limit Exceeded") {
		t.Errorf("reasons %q", reasons)
	}

	if n := b.sim.CallCount("instance_create"); n != 6 {
		t.Errorf("%d create calls", n)
	}

	if waited := b.now.Sub(began); waited < 2*time.Minute || waited > 10*time.Minute {
		t.Errorf("five refusals took %s", waited)
	}
}

// An error that no retry can mend is tried once a minute, costs no disks, and
// heals when it is mended.
func TestAnErrorToBeMendedIsRetriedSlowly(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	spec.Plan.Nics[0].SubnetName = "missing"

	for minute := range 10 {
		_, err := b.drive(spec, b.create)
		if m, ok := errors.AsType[*Mend](err); !ok || !strings.Contains(m.Reason, "missing") {
			t.Fatalf("minute %d: %v", minute, err)
		}

		// Whatever wakes the request meanwhile costs no call.
		_, _ = b.drive(spec, b.create)
		b.pass(time.Minute)
	}

	if n := b.sim.CallCount("instance_create"); n > 10 {
		t.Errorf("%d create calls in ten minutes", n)
	}

	b.wantLeft(0, 0)

	spec.Plan.Nics[0].SubnetName = "default"

	_, err := b.drive(spec, b.create)
	b.ok(err)

	// The failed calls are known to have left nothing: no settling.
	if spec.GetUnsureCreate() != nil {
		t.Error("a refused create counts as unsure")
	}
}

func TestAVanishedImageIsTold(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	spec.Image.Id = "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11"

	if _, err := b.drive(spec, b.create); !errors.Is(err, ErrImageGone) {
		t.Errorf("got %v", err)
	}
}

// An image that is in the list and can not be used costs few calls and says so.
func TestAnImageThatCanNotBeUsedIsNotTriedHot(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	spec.Image.Id = "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11"

	began := b.now

	var reason string

	for b.now.Sub(began) < time.Hour {
		err := b.create(t.Context(), spec)

		switch w, ok := AsWait(err); {
		case ok:
			b.pass(max(w.After, 10*time.Millisecond))

			reason = w.Reason
		case !errors.Is(err, ErrImageGone):
			t.Fatalf("got %v", err)
		}
	}

	if n := b.sim.CallCount("instance_create"); n > 40 {
		t.Errorf("%d create calls in an hour", n)
	}

	if !strings.Contains(reason, "silo viewer") {
		t.Errorf("the reason is %q", reason)
	}
}

// Invariant: nothing leaks: the rack may take a call up as late as when it was
// given up, so the settling time begins then.
func TestSettlingBeginsWhenACallIsGivenUp(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")
	b.storing(b.m.stampAttempt(t.Context(), spec))
	b.pass(2 * time.Minute)

	_, lost := b.m.cfg.Rack.ViewInstance(cancelled(t), "x")
	if _, ok := AsWait(b.m.createFailed(t.Context(), spec, lost)); !ok {
		t.Fatal("no wait")
	}

	gaveUp := b.now

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)

	if waited := b.now.Sub(gaveUp); waited < 2*time.Minute {
		t.Errorf("the teardown ended %s after the call was given up", waited)
	}
}

func cancelled(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	return ctx
}

func TestUserDataAtTheLimitPassesAndBeyondItIsRefusedWithoutACall(t *testing.T) {
	t.Parallel()

	b := newBench(t)

	_, err := b.drive(b.planned("r1"), func(ctx context.Context, s *specs.InstanceSpec) error {
		return b.m.Create(ctx, s, strings.Repeat("x", 32768))
	})
	b.ok(err)

	calls := len(b.sim.Calls())

	_, err = b.drive(b.planned("r2"), func(ctx context.Context, s *specs.InstanceSpec) error {
		return b.m.Create(ctx, s, strings.Repeat("x", 32769))
	})
	if m, ok := errors.AsType[*Mend](err); !ok || !strings.Contains(m.Reason, "32769") || !strings.Contains(m.Reason, "32768") {
		t.Errorf("got %v", err)
	}

	if len(b.sim.Calls()) != calls {
		t.Error("the rack was asked")
	}
}

// Somebody takes a disk of an instance away before it is recorded. That is for a
// person to mend, and costs few calls until it is.
func TestAMissingDiskIsForAPersonToMend(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.planned("r1")

	for spec.GetInstanceId() == "" {
		if w, ok := AsWait(b.create(t.Context(), spec)); !ok {
			t.Fatal("no wait")
		} else {
			b.pass(w.After)
		}
	}

	sdk := must(oxide.NewClient(oxide.WithHost(b.rack.Host()), oxide.WithToken(simrack.DefaultToken)))(t)
	disk := oxide.DiskPath{Disk: oxide.NameOrId(must(b.rack.ViewDiskByName(t.Context(), b.project.Id, spec.GetPlan().GetDisks()[0].GetName()))(t).Id)}
	must(sdk.InstanceDiskDetach(t.Context(), oxide.InstanceDiskDetachParams{Instance: oxide.NameOrId(spec.GetInstanceId()), Body: &disk}))(t)

	_, err := b.drive(spec, b.create)
	if m, ok := errors.AsType[*Mend](err); !ok || !strings.Contains(m.Reason, "has 2 of its 3 disks") {
		t.Fatalf("got %v", err)
	}

	must(sdk.InstanceDiskAttach(t.Context(), oxide.InstanceDiskAttachParams{Instance: oxide.NameOrId(spec.GetInstanceId()), Body: &disk}))(t)

	_, err = b.drive(spec, b.create)
	b.ok(err)

	if n := len(spec.GetDisks()); n != 3 {
		t.Errorf("%d disks are recorded", n)
	}

	_, err = b.drive(spec, b.m.Remove)
	b.ok(err)
	b.wantLeft(0, 0)
}
