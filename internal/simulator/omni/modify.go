package omni

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
)

// modify makes the resource if it is not there, and changes it otherwise. It
// writes nothing when change changed nothing, so that controllers come to rest.
// A resource that is being torn down is changed too.
func modify[T resource.Resource](ctx context.Context, st state.State, empty T, owner string, change func(T) error) error {
	current, err := safe.StateGet[T](ctx, st, empty.Metadata())
	if state.IsNotFoundError(err) {
		if err := change(empty); err != nil {
			return err
		}

		return st.Create(ctx, empty, state.WithCreateOwner(owner))
	}

	if err != nil {
		return err
	}

	return write(ctx, st, current, change)
}

// amend is modify for a resource that must be there: if it is gone, nothing
// happens.
func amend[T resource.Resource](ctx context.Context, st state.State, ptr resource.Pointer, change func(T) error) error {
	current, ok, err := get[T](ctx, st, ptr)
	if err != nil || !ok {
		return err
	}

	return write(ctx, st, current, change)
}

func write[T resource.Resource](ctx context.Context, st state.State, current T, change func(T) error) error {
	before := current.DeepCopy()

	if err := change(current); err != nil {
		return err
	}

	if resource.Equal(before, current) {
		return nil
	}

	return st.Update(ctx, current, state.WithUpdateOwner(current.Metadata().Owner()), state.WithExpectedPhaseAny())
}

// get reads a resource; ok is false when it is not there.
func get[T resource.Resource](ctx context.Context, st state.State, ptr resource.Pointer) (res T, ok bool, err error) {
	res, err = safe.StateGet[T](ctx, st, ptr)
	if state.IsNotFoundError(err) {
		return res, false, nil
	}

	return res, err == nil, err
}

// hold adds a finalizer to a running resource that lacks it.
func hold(ctx context.Context, st state.State, res resource.Resource, finalizer string) error {
	if !running(res) || res.Metadata().Finalizers().Has(finalizer) {
		return nil
	}

	err := st.AddFinalizer(ctx, res.Metadata(), finalizer)
	if state.IsNotFoundError(err) || state.IsPhaseConflictError(err) {
		return nil
	}

	return err
}

// release drops a finalizer.
func release(ctx context.Context, st state.State, res resource.Resource, finalizer string) error {
	if !res.Metadata().Finalizers().Has(finalizer) {
		return nil
	}

	err := st.RemoveFinalizer(ctx, res.Metadata(), finalizer)
	if state.IsNotFoundError(err) {
		return nil
	}

	return err
}

// remove tears a resource down and destroys it once nobody holds it; gone says
// whether it is no more.
func remove(ctx context.Context, st state.State, res resource.Resource) (gone bool, err error) {
	owner := res.Metadata().Owner()

	ready, err := st.Teardown(ctx, res.Metadata(), state.WithTeardownOwner(owner))
	if state.IsNotFoundError(err) {
		return true, nil
	}

	if err != nil || !ready {
		return false, err
	}

	err = st.Destroy(ctx, res.Metadata(), state.WithDestroyOwner(owner))
	if state.IsNotFoundError(err) {
		return true, nil
	}

	return err == nil, err
}

func running(res resource.Resource) bool {
	return res.Metadata().Phase() == resource.PhaseRunning
}

func label(res resource.Resource, key string) string {
	value, _ := res.Metadata().Labels().Get(key)

	return value
}

// copyLabels copies the named labels that are set.
func copyLabels(from, to resource.Resource, keys ...string) {
	for _, key := range keys {
		if value, ok := from.Metadata().Labels().Get(key); ok {
			to.Metadata().Labels().Set(key, value)
		}
	}
}
