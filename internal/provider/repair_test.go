package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource/typed"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
)

// plannedFor is the plan that this version makes for a request.
func (b *bench) plannedFor(id string) *specs.InstanceSpec {
	b.t.Helper()

	running := b.start()

	b.ask(id + "-x")
	b.untilStage(id+"-x", stageProvisioned)

	plan := proto.CloneOf(b.stored(id + "-x").TypedSpec().Value.GetPlan())

	b.remove(id + "-x")
	b.untilReleased(id + "-x")
	b.ok(running.stop())

	plan.RequestId, plan.InstanceName, plan.BootDisk.Name = id, id, "boot-"+id

	return &specs.InstanceSpec{Plan: plan}
}

// repair does what is done before each Run.
func (b *bench) repair() error {
	states, published, err := listStates(b.t.Context(), b.st)
	if err != nil {
		return err
	}

	newStateLook(b.logger, health.NewBoard(b.logger)).look(b.owner, states, published)

	return repairSteps(b.t.Context(), b.logger, b.st, states)
}

// Stored formats are promises, and the SDK reports a request whose stored step
// it does not know as provisioned, with no machine behind it. So such a step is
// set back, and the machine really made; known steps are left alone.
func TestAnUnknownStepIsSetBackAndTheMachineMade(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		planned := b.plannedFor(theRequest)

		b.ask(theRequest)
		b.store(theRequest, "polish", planned)
		b.ok(b.repair())

		if got := b.logged(zapcore.WarnLevel); len(got) != 2 || got[0].ContextMap()["oddity"] != "unknown_step" {
			t.Errorf("logged\n%s", text(got))
		}

		if got := text(b.logged(zapcore.InfoLevel)); !strings.Contains(got, "step.before:polish") {
			t.Errorf("logged\n%s", got)
		}

		b.start()
		b.untilStage(theRequest, stageProvisioned)
		b.wantLeft(1, 1)

		if i, found := b.sim.Inspect(b.stored(theRequest).TypedSpec().Value.GetInstanceId()); !found || i.RunState != "running" {
			t.Errorf("the machine behind it is %+v", i)
		}
	})
}

// What the repair guards against, so that it is missed if the SDK changes.
func TestWithoutTheRepairAnUnknownStepMeansNoMachine(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		planned := b.plannedFor(theRequest)

		b.ask(theRequest)
		b.store(theRequest, "polish", planned)
		b.start()
		b.untilStage(theRequest, stageProvisioned)
		b.wantLeft(0, 0)
	})
}

func TestKnownStepsAreNotWritten(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		steps := []string{stepPlan, stepImage, stepInstance, stepConfig, stepStart}
		versions := map[string]string{}

		for _, step := range steps {
			b.ask("talos-workers-"+step, func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = "1.13.4" })
			b.store("talos-workers-"+step, step, &specs.InstanceSpec{})
			versions[step] = b.stored("talos-workers-" + step).Metadata().Version().String()
		}

		b.ok(b.repair())

		for _, step := range steps {
			if got := b.stored("talos-workers-" + step).Metadata().Version().String(); got != versions[step] {
				t.Errorf("the state at step %s was written", step)
			}
		}

		writes := slices.DeleteFunc(b.logged(zapcore.DebugLevel), func(e entry) bool { return !strings.Contains(e.Message, "step") })
		if len(writes) != 0 {
			t.Errorf("logged\n%s", text(writes))
		}
	})
}

// A request that Omni was told to be done runs no step, so its state needs no
// write, however many of them an older version meets after a rollback.
func TestAnUnknownStepOfAProvisionedRequestIsNotWritten(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		running := b.start()

		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)
		b.ok(running.stop())
		b.store(theRequest, "polish", b.stored(theRequest).TypedSpec().Value)

		before := b.stored(theRequest).Metadata().Version()
		b.ok(b.repair())

		if got := b.stored(theRequest).Metadata().Version(); !got.Equal(before) {
			t.Error("the state was written")
		}
	})
}

// Invariant: a step name is retired only by an alias to a step of this version,
// and none that was ever released is forgotten.
func TestEveryStepNameEverReleasedIsKnown(t *testing.T) {
	t.Parallel()

	// Only ever added to.
	for _, name := range []string{"plan", "image", "instance", "config", "start"} {
		res := typed.NewResource[InstanceSpec, instanceExtension](metadata(instanceName, "x"), InstanceSpec{})
		res.Metadata().Annotations().Set(stepAnnotation, name)

		if stepOf(res) == "" {
			t.Errorf("step %q is unknown", name)
		}
	}

	current := map[string]bool{}
	for _, s := range (&Provisioner{}).ProvisionSteps() {
		current[s.Name()] = true
	}

	for from, to := range stepAliases {
		if current[from] || !current[to] {
			t.Errorf("alias %q of %q: it must lead from a retired step to a present one", from, to)
		}
	}
}
