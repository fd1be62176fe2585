package provider

import (
	"slices"
	"strings"
	"testing"

	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
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

// Stored formats are promises, and the SDK reports a request whose stored step
// it does not know as provisioned, with no machine behind it. So such a step is
// set back, and the machine really made; known steps are left alone.
func TestAnUnknownStepIsSetBackAndTheMachineMade(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		planned := b.plannedFor(theRequest)

		b.ask(theRequest)
		b.store(theRequest, "polish", planned)
		b.ok(repairSteps(t.Context(), b.logger, b.st))

		if got := b.logged(zapcore.WarnLevel); len(got) != 1 || got[0].ContextMap()["step"] != "polish" {
			t.Errorf("logged\n%s", text(got))
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

		b.ok(repairSteps(t.Context(), b.logger, b.st))

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
