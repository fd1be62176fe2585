package provider

import (
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lifetime"
)

// When an image was last used is kept in Omni with the rights of a provider, and
// what requests want is told whether or not they have a plan.
func TestWhatIsRecordedOfImages(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.start()

		r := &Records{State: func() state.State { return b.st }}
		ctx, at := t.Context(), time.Now().Truncate(time.Second)

		for _, u := range []lifetime.Use{
			{ImageID: "i-1", ProjectID: "p-1", At: at}, {ImageID: "i-2", At: at}, {ImageID: "i-1", At: at.Add(time.Hour)},
		} {
			b.ok(r.RecordUse(ctx, u))
		}

		b.ok(r.ForgetUse(ctx, "i-2"))
		b.ok(r.ForgetUse(ctx, "i-2"))

		uses, err := r.ImageUses(ctx)
		b.ok(err)

		if len(uses) != 1 || uses[0].ImageID != "i-1" || uses[0].ProjectID != "" || !uses[0].At.Equal(at.Add(time.Hour)) {
			t.Errorf("recorded %+v", uses)
		}

		b.provisioned(theRequest, "project: demo\n")
		b.ask("wrong", class("project: nowhere\n"))
		b.untilStage("wrong", stageFailed)

		wants, err := r.Wants(ctx)
		b.ok(err)

		plan := b.stored(theRequest).TypedSpec().Value

		for _, w := range wants {
			planned := w.RequestID == theRequest

			switch {
			case planned && (w.Identity == nil || *w.Identity != identity(plan.GetPlan().GetImage()) || w.ImageID != plan.GetImage().GetId()):
				t.Errorf("a request with a plan wants %+v", w)
			case !planned && (w.Identity != nil || w.ImageID != "" || w.Talos != "1.13.5"):
				t.Errorf("a request without a plan wants %+v", w)
			}
		}

		if len(wants) != 2 {
			t.Errorf("%d requests want something", len(wants))
		}
	})
}
