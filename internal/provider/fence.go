package provider

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
)

// fence is Omni's state for work of the holder alone. The rack's gate is what
// keeps a process from acting that has lost the lease, as steps act before they
// write; this keeps one that was paused from writing late what was true before.
//
// It wraps the core state, so that read-modify-writes come through it too.
type fence struct {
	state.CoreState

	may func() error
}

// fenced is the state behind the lease, and behind the key.
func (d *Daemon) fenced(st state.CoreState) state.CoreState { //nolint:ireturn // it stands in for another one
	return fence{CoreState: st, may: d.check}
}

// Create implements state.CoreState.
func (f fence) Create(ctx context.Context, res resource.Resource, opts ...state.CreateOption) error {
	if err := f.refusal(); err != nil {
		return err
	}

	return f.CoreState.Create(ctx, res, opts...)
}

// Update implements state.CoreState.
func (f fence) Update(ctx context.Context, res resource.Resource, opts ...state.UpdateOption) error {
	if err := f.refusal(); err != nil {
		return err
	}

	return f.CoreState.Update(ctx, res, opts...)
}

// Destroy implements state.CoreState.
func (f fence) Destroy(ctx context.Context, ptr resource.Pointer, opts ...state.DestroyOption) error {
	if err := f.refusal(); err != nil {
		return err
	}

	return f.CoreState.Destroy(ctx, ptr, opts...)
}

// refusal is why nothing may be written now. It is a wait: nothing is wrong.
func (f fence) refusal() error {
	if err := f.may(); err != nil {
		return &waiting{reason: err.Error()}
	}

	return nil
}
