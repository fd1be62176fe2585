package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/controller"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// foreign makes an instance and a disk whose marks are those of the request,
// but for one thing, or no marks at all.
func (b *bench) foreign(requestID string) {
	b.t.Helper()

	mark := naming.Mark{Owner: b.owner, Provider: testID, Key: naming.RequestKey(requestID), Run: "0123abcd"}
	start := false

	for name, change := range map[string]func(*naming.Mark) string{
		"other-owner":    func(m *naming.Mark) string { m.Owner = naming.NewOwner(); return m.String() },
		"other-provider": func(m *naming.Mark) string { m.Provider = "another"; return m.String() },
		"other-request":  func(m *naming.Mark) string { m.Key = naming.RequestKey("another"); return m.String() },
		"not-at-the-end": func(m *naming.Mark) string { return m.String() + "." },
		"no-mark":        func(*naming.Mark) string { return "Talos machine " + requestID + " of Omni." },
	} {
		instance, disk := mark, mark
		instance.Kind, disk.Kind = naming.KindInstance, naming.KindData

		_, err := b.rack.CreateInstance(b.t.Context(), b.project.Id, oxide.InstanceCreate{
			Name: oxide.Name(name), Hostname: oxide.Hostname(name), Description: change(&instance), Ncpus: 1, Memory: gib,
			SshPublicKeys: []oxide.NameOrId{}, Start: &start,
			NetworkInterfaces: oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}},
		})
		b.ok(err)

		_, err = b.rack.CreateDisk(b.t.Context(), b.project.Id, oxide.DiskCreate{
			Name: oxide.Name(name), Description: change(&disk), Size: gib,
			DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{
				DiskSource: oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: 512}},
			}},
		})
		b.ok(err)
	}
}

// foreigners is the number of instances, and of disks, that foreign makes.
const foreigners = 5

// Invariants: nothing leaks, and nothing foreign is touched. A teardown removes
// the instance and all its disks, and not one thing else.
func TestATeardownRemovesItsOwnAndNothingElse(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.foreign(theRequest)
		b.start()
		b.ask(theRequest, class("project: demo\ndisks: [{type: distributed, size: 5}, {type: local, size: 3}]"))
		b.untilStage(theRequest, stageProvisioned)
		b.wantLeft(foreigners+1, foreigners+3)

		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantLeft(foreigners, foreigners)

		if b.stored(theRequest) != nil || len(b.patches(theRequest)) != 0 {
			t.Error("the state or patches are left in Omni")
		}

		if loud := b.logged(zapcore.WarnLevel); len(loud) != 0 {
			t.Errorf("logged\n%s", text(loud))
		}
	})
}

// The state of a living request may have been removed by hand; the SDK makes it
// again, empty. What is ours is found by its marks in the class's project.
func TestATeardownWithoutAPlanFindsWhatIsMarked(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		b.foreign(theRequest)

		running := b.start()

		b.ask(theRequest, class("project: demo\ndisks: [{type: distributed, size: 5}]"))
		b.untilStage(theRequest, stageProvisioned)
		b.ok(running.stop())
		b.store(theRequest, stepStart, &specs.InstanceSpec{})
		b.remove(theRequest)
		b.start()
		b.untilReleased(theRequest)
		b.wantLeft(foreigners, foreigners)
	})
}

// Invariant: nothing leaks. A state was lost and made again, the class's project
// was renamed, and another project has its name now: what the request has is found
// all the same.
func TestATeardownWithoutAPlanFindsWhatIsInARenamedProject(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		c, running := b.operator(), b.start()

		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)
		b.ok(running.stop())

		b.ok(b.st.Destroy(t.Context(), b.stored(theRequest).Metadata(), state.WithDestroyOwner(testID+sdkController)))
		b.pass(remadeAfter)
		b.store(theRequest, stepStart, &specs.InstanceSpec{})

		_, err := c.ProjectUpdate(t.Context(), oxide.ProjectUpdateParams{Project: oxide.NameOrId(b.project.Id), Body: &oxide.ProjectUpdate{Name: "renamed"}})
		b.ok(err)
		_, err = c.ProjectCreate(t.Context(), oxide.ProjectCreateParams{Body: &oxide.ProjectCreate{Name: "demo", Description: "another"}})
		b.ok(err)

		b.remove(theRequest)
		b.start()
		b.untilReleased(theRequest)
		b.wantLeft(0, 0)
	})
}

// A class that names no usable project never had anything made: its teardown
// ends, and asks the rack for no more than whether the project is there.
func TestATeardownWithoutAPlanOrAProjectEnds(t *testing.T) {
	t.Parallel()

	for name, text := range map[string]string{"no project": "project: nowhere", "no class": "cpus: 300", "empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				b.start()
				b.ask(theRequest, class(text))
				b.untilStage(theRequest, stageFailed)
				b.remove(theRequest)
				b.untilReleased(theRequest)

				if n := b.sim.CallCount("instance_list"); n != 0 {
					t.Errorf("%d lists of instances", n)
				}
			})
		})
	}
}

// deprovision calls Deprovision as the SDK does until it is done, with the same
// state each time: what it changes there is not stored.
func (b *bench) deprovision(p *Provisioner, res *Instance, request *infra.MachineRequest) (calls int) {
	b.t.Helper()

	before := proto.CloneOf(res.TypedSpec().Value)

	for calls = 1; ; calls++ {
		err := p.Deprovision(b.t.Context(), b.logger, res, request)

		if !proto.Equal(before, res.TypedSpec().Value) {
			b.t.Errorf("a teardown changed the state to %v", res.TypedSpec().Value)
		}

		if err == nil {
			return calls
		}

		r := requeue(b.t, err)
		b.pass(r.Interval())

		if calls > 200 {
			b.t.Fatalf("not done after %d calls: %v", calls, err)
		}
	}
}

func requeue(t *testing.T, err error) *controller.RequeueError {
	t.Helper()

	r, ok := errors.AsType[*controller.RequeueError](err)
	if !ok || r.Interval() <= 0 {
		t.Fatalf("no requeue but %v", err)
	}

	return r
}

// Deprovision is called again when a write of the SDK failed after it: it needs
// nothing that an earlier call has changed, in the state or in the process.
func TestATeardownCanBeginAgainAtAnyTime(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		running := b.start()
		request := b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)
		b.ok(running.stop())

		res := b.stored(theRequest)

		// Each call by another process.
		for calls := 0; ; calls++ {
			err := b.provisioner().Deprovision(t.Context(), b.logger, res, request)
			if err == nil {
				break
			}

			if calls > 50 {
				t.Fatalf("not done after %d calls: %v", calls, err)
			}

			b.pass(requeue(t, err).Interval())
		}

		b.wantLeft(0, 0)

		deletes := []string{"instance_stop", "instance_delete", "disk_delete"}
		before := b.counts(deletes)

		if calls := b.deprovision(b.provisioner(), res, request); calls != 1 {
			t.Errorf("done again after %d calls", calls)
		}

		if after := b.counts(deletes); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("calls %v: %v before, %v after", deletes, before, after)
		}
	})
}

// A rack that is away holds a teardown up, never ends it: gone is proved, never
// assumed. The log says once what is awaited.
func TestATeardownWaitsForARackThatIsAway(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)

		for name, fault := range map[string]simrack.Fault{
			"resets":          {Action: simrack.ActionReset},
			"unavailable":     {Action: simrack.ActionError, Status: 503, Message: "Service Unavailable"},
			"token refused":   {Action: simrack.ActionError, Status: 401, Code: "Unauthorized", Message: "credentials missing or invalid"},
			"all is 404":      {Action: simrack.ActionError, Status: 404, Code: "ObjectNotFound", Message: "not found"},
			"internal errors": {Action: simrack.ActionError, Status: 500, Code: "Internal", Message: "Internal Server Error"},
		} {
			b.fault(fault)
			b.remove(theRequest)
			b.pass(3 * time.Minute)

			if b.released(theRequest) || b.stored(theRequest) == nil {
				t.Fatalf("%s: the request was let go", name)
			}

			b.sim.RemoveFault(0)
		}

		said := 0

		for _, e := range b.logged(zapcore.InfoLevel) {
			if strings.HasPrefix(e.Message, "removing the machine: ") {
				said++
			}
		}

		if said < 4 || said > 40 {
			t.Errorf("a quarter of an hour is told %d times:\n%s", said, b.logText())
		}

		b.untilReleased(theRequest)
		b.wantLeft(0, 0)
	})
}

// Invariant: one request, at most one instance, and nothing leaks, also when
// the rack carries a create out after its answer was lost and the request was
// torn down meanwhile.
func TestATeardownOutlastsALostCreate(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.fault(simrack.Fault{
			Operation: "instance_create", Count: 1, Action: simrack.ActionCommitLate, Delay: simrack.Duration(90 * time.Second),
		})

		lost := make(chan struct{}, 1)
		b.hook(&b.before, func(operation string) {
			if operation == "instance_create" {
				lost <- struct{}{}
			}
		})

		b.start()
		b.ask(theRequest)
		<-lost

		began := time.Now()

		b.remove(theRequest)
		b.untilReleased(theRequest)

		if took := time.Since(began); took < 90*time.Second || took > settle+time.Minute {
			t.Errorf("the teardown took %s", took)
		}

		b.pass(10 * time.Minute)
		b.wantLeft(0, 0)
	})
}

// A request that is torn down at any point of its making leaves nothing.
func TestATeardownAtAnyPointLeavesNothing(t *testing.T) {
	t.Parallel()

	for _, operation := range []string{
		"project_view", "vpc_subnet_view", "instance_view", "instance_create", "instance_disk_list", "instance_start",
	} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(_ *testing.T, b *bench) {
				at := make(chan struct{}, 1000)
				b.hook(&b.after, func(op string) {
					if op == operation {
						at <- struct{}{}
					}
				})
				b.start()
				b.ask(theRequest, class("project: demo\ndisks: [{type: distributed, size: 5}]"))
				<-at
				b.remove(theRequest)
				b.untilReleased(theRequest)
				b.pass(10 * time.Minute)
				b.wantLeft(0, 0)
			})
		})
	}
}

// A panic in a teardown is tried again, and logged with its stack once.
func TestAPanicInATeardownIsTriedAgain(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		real := b.work.Machines
		b.work.Machines = &fragile{Machines: real, panics: 3}
		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)
		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantLeft(0, 0)

		if loud := b.logged(zapcore.ErrorLevel); len(loud) != 1 || loud[0].Message != teardownPanicked {
			t.Errorf("logged %d\n%s", len(loud), text(loud))
		}
	})
}

// fragile panics at the first removals.
type fragile struct {
	Machines

	panics int
}

func (f *fragile) Remove(ctx context.Context, spec *InstanceState) error {
	if f.panics > 0 {
		f.panics--

		panic("a bug")
	}

	return f.Machines.Remove(ctx, spec)
}
