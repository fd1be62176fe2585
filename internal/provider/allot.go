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

// storing is how long a plan that a step has returned is believed to be on its
// way to Omni, if it is not seen there.
const storing = 10 * time.Minute

// allotment hands out what machines share, one plan at a time.
type allotment struct {
	mu sync.Mutex
	// given are the plans that the SDK may not have stored yet, by request.
	given map[string]given
}

type given struct {
	plan *specs.Plan
	at   time.Time
}

// allot has take put into a plan what it gets of the things that are shared,
// knowing all other plans. That happens to one plan at a time, and what a plan
// got is its from then on: the SDK stores it only after the step has returned.
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
		a.given = map[string]given{}
	}

	a.given[plan.GetRequestId()] = given{proto.CloneOf(plan), time.Now()}

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

	var plans []*specs.Plan

	for s := range states.All() {
		plan := s.TypedSpec().Value.GetPlan()
		if plan == nil {
			continue
		}

		delete(p.allotted.given, s.Metadata().ID())

		if s.Metadata().ID() != requestID {
			plans = append(plans, plan)
		}
	}

	for id, g := range p.allotted.given {
		switch {
		case time.Since(g.at) > storing:
			delete(p.allotted.given, id)
		case id != requestID:
			plans = append(plans, g.plan)
		}
	}

	return plans, nil
}
