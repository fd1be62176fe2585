package provider

import (
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource/typed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
)

// stateOf is a state as this version stores it, changed.
func stateOf(id string, change func(*Instance)) *Instance {
	spec := fullState()
	spec.Plan.RequestId = id

	res := typed.NewResource[InstanceSpec, instanceExtension](metadata(instanceName, id), InstanceSpec{Value: spec})
	res.Metadata().Annotations().Set(stepAnnotation, stepConfig)
	change(res)

	return res
}

// future is a field that this version does not know.
var future = protowire.AppendString(protowire.AppendTag(nil, 1023, protowire.BytesType), "new")

// Invariant: a state that is not one of this version for its request is never
// passed over in silence: it has a line in the log, once, a count, and stands in
// health until it is gone.
func TestAnOddStateIsLoggedCountedAndInHealth(t *testing.T) {
	t.Parallel()

	for is, c := range map[Oddity]struct {
		words  string
		change func(*Instance)
	}{
		OddStep:    {"stored step unknown, begun again", func(r *Instance) { r.Metadata().Annotations().Set(stepAnnotation, "polish") }},
		OddRequest: {"plan of another request", func(r *Instance) { r.TypedSpec().Value.Plan.RequestId = "other" }},
		OddFormat:  {"planned by a newer version", func(r *Instance) { r.TypedSpec().Value.Plan.Format = planFormat + 1 }},
		OddOwner:   {"planned by another owner", func(r *Instance) { r.TypedSpec().Value.Plan.Owner = "zzzzzzzzzzzzzzzzzzzzzzzzzz" }},
		OddFields:  {"fields of a newer version", func(r *Instance) { r.TypedSpec().Value.ProtoReflect().SetUnknown(future) }},
	} {
		t.Run(string(is), func(t *testing.T) {
			t.Parallel()

			core, logs := observer.New(zapcore.WarnLevel)
			board := health.NewBoard(zap.NewNop())
			look := newStateLook(zap.New(core), board)
			good := stateOf("talos-workers-bcdfgh", func(*Instance) {})
			owner := good.TypedSpec().Value.GetPlan().GetOwner()
			states := []*Instance{good, stateOf(theRequest, c.change)}

			for range 3 {
				look.look(owner, states, nil)
			}

			if n := look.Counts()[is]; n != 1 {
				t.Errorf("counted %d: %v", n, look.Counts())
			}

			if logs.Len() != 1 || logs.All()[0].ContextMap()["omni.request.id"] != theRequest {
				t.Errorf("logged\n%s", text(logs.All()))
			}

			if err := board.Err(); err == nil || !strings.Contains(err.Error(), c.words+": "+theRequest) || strings.Contains(err.Error(), "bcdfgh") {
				t.Errorf("health says %v", err)
			}

			if !board.Ready() {
				t.Error("it makes the daemon unready")
			}

			look.look(owner, states[:1], nil)

			if err := board.Err(); err != nil || look.Counts()[is] != 0 {
				t.Errorf("when it is gone: %v, %v", err, look.Counts())
			}
		})
	}
}

func TestUnknownFieldsAreFoundAtAnyDepth(t *testing.T) {
	t.Parallel()

	for name, m := range map[string]func(*specs.InstanceSpec) proto.Message{
		"top":     func(s *specs.InstanceSpec) proto.Message { return s },
		"plan":    func(s *specs.InstanceSpec) proto.Message { return s.GetPlan() },
		"nic":     func(s *specs.InstanceSpec) proto.Message { return s.GetPlan().GetNics()[0] },
		"disk":    func(s *specs.InstanceSpec) proto.Message { return s.GetDisks()[0] },
		"attempt": func(s *specs.InstanceSpec) proto.Message { return s.GetStart() },
	} {
		spec := fullState()
		if hasUnknown(spec.ProtoReflect()) {
			t.Fatal("the full state has unknown fields")
		}

		m(spec).ProtoReflect().SetUnknown(future)

		if !hasUnknown(spec.ProtoReflect()) {
			t.Errorf("%s: not found", name)
		}
	}
}

// Invariant: fields of a newer version survive all that this version does with a
// request, so that the newer one finds them again after a rollback.
func TestFieldsOfANewerVersionSurviveTheSteps(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		planned := b.plannedFor(theRequest)
		planned.ProtoReflect().SetUnknown(future)
		planned.GetPlan().ProtoReflect().SetUnknown(future)

		b.ask(theRequest)
		b.store(theRequest, stepImage, planned)
		b.start()
		b.untilStage(theRequest, stageProvisioned)

		spec := b.stored(theRequest).TypedSpec().Value
		if len(spec.ProtoReflect().GetUnknown()) == 0 || len(spec.GetPlan().ProtoReflect().GetUnknown()) == 0 || spec.GetInstanceId() == "" {
			t.Errorf("the state is now %v", spec)
		}

		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantLeft(0, 0)
	})
}

// Invariant: what the plan of another request names is not this request's. Its
// teardown ends, with what bears its own mark gone and the other's machine
// running.
func TestATeardownLeavesWhatThePlanOfAnotherRequestNames(t *testing.T) {
	t.Parallel()

	const other = "talos-workers-ghijkl"

	bubble(t, func(t *testing.T, b *bench) {
		running := b.start()

		for _, id := range []string{theRequest, other} {
			b.ask(id)
			b.untilStage(id, stageProvisioned)
		}

		b.ok(running.stop())

		theirs := proto.CloneOf(b.stored(other).TypedSpec().Value)
		b.store(theRequest, stepStart, theirs)
		b.remove(theRequest)
		b.start()
		b.untilReleased(theRequest)
		b.wantLeft(1, 1)

		if i, found := b.sim.Inspect(theirs.GetInstanceId()); !found || i.RunState != "running" {
			t.Errorf("the other's machine is %+v", i)
		}
	})
}
