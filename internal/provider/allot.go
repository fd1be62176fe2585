package provider

import (
	"context"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
)

// allotment hands out what machines share, one plan at a time.
//
//	step: lock ─ read all plans ─ take ─ note ─ unlock ─> stored by the SDK ─ seen by a later step: no longer noted
type allotment struct {
	mu sync.Mutex
	// given are the plans that the SDK may not have stored yet, by request.
	given map[string]*specs.Plan
}

// allot has take put into a plan what it gets of the things that are shared,
// knowing all other plans. That happens to one plan at a time, and what a plan
// got is its from then on: the SDK stores it only after the step has returned. A
// plan that is given something else has both until that is stored. An error of
// take means that the plan has what it had before.
func (p *Provisioner) allot(ctx context.Context, plan *specs.Plan, take func(others []*specs.Plan) error) error {
	a := &p.allotted

	if !a.mu.TryLock() {
		return &instance.Wait{After: spread(100 * time.Millisecond)}
	}

	defer a.mu.Unlock()

	others, err := p.otherPlans(ctx, plan.GetRequestId())
	if err != nil {
		return err
	}

	if err := take(others); err != nil {
		return err
	}

	if a.given == nil {
		a.given = map[string]*specs.Plan{}
	}

	a.given[plan.GetRequestId()] = proto.CloneOf(plan)

	return nil
}

// otherPlans are all plans but that of a request, those of machines that are
// being removed included. Held: p.allotted.mu.
func (p *Provisioner) otherPlans(ctx context.Context, requestID string) ([]*specs.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	states, err := safe.StateListAll[*Instance](ctx, p.State())
	if err != nil {
		return nil, &instance.Wait{Reason: "reading the plans of the other machines from Omni", After: spread(5 * time.Second), Cause: err}
	}

	var (
		plans  []*specs.Plan
		stored = map[string]*specs.Plan{}
	)

	for s := range states.All() {
		plan := s.TypedSpec().Value.GetPlan()
		stored[s.Metadata().ID()] = plan

		if plan != nil && s.Metadata().ID() != requestID {
			plans = append(plans, plan)
		}
	}

	for id, given := range p.allotted.given {
		now, there := stored[id]

		switch {
		case !there || sameParts(now, given):
			// The SDK makes a request's state before its first step, so one without a
			// state is gone.
			delete(p.allotted.given, id)
		case id != requestID:
			plans = append(plans, withoutSeen(given, now))
		}
	}

	return plans, nil
}

// sameParts says whether two plans of a request have the same of what is shared.
func sameParts(a, b *specs.Plan) bool {
	part := func(p *specs.Plan) *specs.Plan {
		return &specs.Plan{Nics: p.GetNics(), ExternalIps: p.GetExternalIps(), SetGroup: p.GetSetGroup()}
	}

	return a != nil && proto.Equal(part(a), part(b))
}

// withoutSeen is a plan that was given other addresses than are stored. Its place
// in a group counts once.
func withoutSeen(given, stored *specs.Plan) *specs.Plan {
	if stored == nil {
		return given
	}

	given = proto.CloneOf(given)
	given.SetGroup = nil

	return given
}
