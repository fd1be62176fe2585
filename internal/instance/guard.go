package instance

import (
	"context"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Act is one call of a removal that changes something in the rack.
type Act struct {
	// Verb is "stop" or "delete".
	Verb string
	// Kind is naming.KindInstance, naming.KindIP, or naming.KindBoot for any disk.
	Kind     naming.Kind
	ID, Name string
}

// Guard is asked right before each such call. The call is made if it answers
// nil, and its error is the removal's otherwise: a *Wait to look again later.
type Guard func(ctx context.Context, act Act) error

// Guarded answers Machines that ask the guard, and share the places in line and
// all memory with m.
func (m *Machines) Guarded(guard Guard) *Machines {
	guarded := *m
	guarded.guard = guard

	return &guarded
}

func (m *Machines) asked(ctx context.Context, act Act) error {
	if m.guard == nil {
		return nil
	}

	return m.guard(ctx, act)
}

// RemoveMarked takes down whatever in a project bears our mark with a key,
// where nothing else is known of the request. Of the plan only the project and
// the silo are used. It returns nil when a complete list shows nothing of it.
func (m *Machines) RemoveMarked(ctx context.Context, plan *specs.Plan, key string) error {
	return m.removeAll(ctx, target{plan: plan, key: key})
}
