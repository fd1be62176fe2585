package provider

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
)

type gateTest struct {
	t     *testing.T
	inner state.State
	outer state.State
	now   time.Time
}

func newGateTest(t *testing.T) *gateTest {
	t.Helper()

	g := &gateTest{t: t, inner: state.WrapCore(inmem.NewState("infra-provider")), now: time.Unix(1000, 0)}
	gate := newStatusGate(g.inner)
	gate.now = func() time.Time { return g.now }
	g.outer = state.WrapCore(gate)

	return g
}

// write does what the SDK does after a step, and answers what is stored.
func (g *gateTest) write(stage omnispecs.MachineRequestStatusSpec_Stage, status, reason string) *omnispecs.MachineRequestStatusSpec {
	g.t.Helper()

	res := infra.NewMachineRequestStatus("r1")

	if _, err := g.inner.Get(g.t.Context(), res.Metadata()); state.IsNotFoundError(err) {
		if err := g.outer.Create(g.t.Context(), res); err != nil {
			g.t.Fatal(err)
		}
	}

	_, err := safe.StateUpdateWithConflicts(g.t.Context(), g.outer, res.Metadata(), func(r *infra.MachineRequestStatus) error {
		r.TypedSpec().Value.Stage, r.TypedSpec().Value.Status, r.TypedSpec().Value.Error = stage, status, reason

		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}

	stored, err := safe.StateGet[*infra.MachineRequestStatus](g.t.Context(), g.inner, res.Metadata())
	if err != nil {
		g.t.Fatal(err)
	}

	return stored.TypedSpec().Value
}

const provisioning, failed = omnispecs.MachineRequestStatusSpec_PROVISIONING, omnispecs.MachineRequestStatusSpec_FAILED

// Invariant: the user can read why a request waits, where Omni's page shows it.
func TestAWaitingRequestShowsItsReason(t *testing.T) {
	t.Parallel()

	g := newGateTest(t)

	if got := g.write(provisioning, `Running Step: "image" (2/5)`, "waiting for the image"); got.GetStatus() != "waiting for the image" {
		t.Errorf("status %q", got.GetStatus())
	}

	// What was told stands until there is something else to tell.
	if got := g.write(provisioning, `Running Step: "image" (2/5)`, ""); got.GetStatus() != "waiting for the image" {
		t.Errorf("without a reason: status %q", got.GetStatus())
	}

	if got := g.write(failed, `Running Step: "plan" (1/5)`, "no such project"); got.GetStatus() != `Running Step: "plan" (1/5)` || got.GetError() != "no such project" {
		t.Errorf("failed: %v", got)
	}
}

// Rule: a write that only names the step that has passed is left out, and no other
// is: not the first, not one after a failure, and none that changes something beside
// the text.
func TestAPassedStepIsNotWritten(t *testing.T) {
	t.Parallel()

	g := newGateTest(t)
	version := func() string {
		res, err := g.inner.Get(t.Context(), infra.NewMachineRequestStatus("r1").Metadata())
		if err != nil {
			t.Fatal(err)
		}

		return res.Metadata().Version().String()
	}

	const plan, image = `Running Step: "plan" (1/5)`, `Running Step: "image" (2/5)`

	if got := g.write(provisioning, plan, ""); got.GetStatus() != plan {
		t.Errorf("at first: %q", got.GetStatus())
	}

	before := version()
	if got := g.write(provisioning, image, ""); got.GetStatus() != plan || version() != before {
		t.Errorf("after the next step: %q", got.GetStatus())
	}

	g.write(failed, image, "no such project")

	if got := g.write(provisioning, image, ""); got.GetStage() != provisioning || got.GetError() != "" {
		t.Errorf("after a failure: %v", got)
	}

	if got := g.write(provisioning, image, "waiting, number 2"); got.GetStatus() != "waiting, number 2" {
		t.Errorf("a wait: %q", got.GetStatus())
	}

	before = version()
	if got := g.write(provisioning, image, "waiting, number 1"); got.GetStatus() != "waiting, number 2" || version() != before {
		t.Errorf("a text that stands was written again: %q", got.GetStatus())
	}

	// The machine has joined, and the status is torn down.
	_, err := safe.StateUpdateWithConflicts(t.Context(), g.outer, infra.NewMachineRequestStatus("r1").Metadata(), func(r *infra.MachineRequestStatus) error {
		r.TypedSpec().Value.Id, r.TypedSpec().Value.Status, r.TypedSpec().Value.Error = "machine", image, ""

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if got := g.write(provisioning, image, ""); got.GetId() != "machine" || got.GetStatus() != image {
		t.Errorf("after it has joined: %v", got)
	}

	if _, err := g.outer.Teardown(t.Context(), infra.NewMachineRequestStatus("r1").Metadata()); err != nil {
		t.Fatal(err)
	}

	if res, err := g.inner.Get(t.Context(), infra.NewMachineRequestStatus("r1").Metadata()); err != nil || res.Metadata().Phase() != resource.PhaseTearingDown {
		t.Errorf("after its teardown: %v, %v", res, err)
	}
}

func TestTextsForOmniAreOneLineAndShort(t *testing.T) {
	t.Parallel()

	got := newGateTest(t).write(failed, "", "one\n two\t"+strings.Repeat("ä", 500)).GetError()
	if n := len([]rune(got)); n != maxText || strings.ContainsAny(got, "\n\t") || !strings.HasPrefix(got, "one two ä") {
		t.Errorf("%d characters: %q", n, got)
	}
}

func TestAProgressTextStandsForAWhile(t *testing.T) {
	t.Parallel()

	g := newGateTest(t)

	for _, tc := range []struct {
		after time.Duration
		text  string
		want  string
	}{
		{0, "uploading: 3 % (1 MiB)", "uploading: 3 % (1 MiB)"},
		{time.Second, "uploading: 8 % (2 MiB)", "uploading: 3 % (1 MiB)"},
		{time.Second, "uploading: 13 % (4 MiB)", "uploading: 13 % (4 MiB)"},
		{9 * time.Second, "uploading: 14 % (4 MiB)", "uploading: 13 % (4 MiB)"},
		{time.Second, "uploading: 14 % (5 MiB)", "uploading: 14 % (5 MiB)"},
		{0, "finalizing", "finalizing"},
	} {
		g.now = g.now.Add(tc.after)

		if got := g.write(provisioning, "x", tc.text).GetStatus(); got != tc.want {
			t.Errorf("%q is shown as %q, want %q", tc.text, got, tc.want)
		}
	}
}

func TestLostRaceIsNotDeniedPermission(t *testing.T) {
	t.Parallel()

	st := state.WrapCore(inmem.NewState("infra-provider"))
	res := infra.NewMachineRequestStatus("r1")

	if err := st.Create(t.Context(), res, state.WithCreateOwner("somebody")); err != nil {
		t.Fatal(err)
	}

	if err := st.Create(t.Context(), infra.NewMachineRequestStatus("r1")); !lostRace(err) {
		t.Errorf("a second create: %v", err)
	}

	if err := st.Update(t.Context(), res, state.WithUpdateOwner("another")); lostRace(err) || err == nil {
		t.Errorf("an owner conflict counts as a lost race: %v", err)
	}

	if lostRace(errors.New("x")) {
		t.Error("any error counts as a lost race")
	}
}
