package provider

import (
	"errors"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// Invariant: nothing leaks and nothing is orphaned when the owner resource is
// removed by somebody: all marks in the rack hang on it, so it comes back as it
// was.
func TestALostOwnerIsMadeAgainAsItWas(t *testing.T) {
	t.Parallel()

	const first, second = "abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza"

	plan := func(st state.State, id, owner string) {
		res := typed.NewResource[InstanceSpec, instanceExtension](metadata(instanceName, id),
			protobuf.NewResourceSpec(&specs.InstanceSpec{Plan: &specs.Plan{Owner: owner}}))
		if err := st.Create(t.Context(), res); err != nil {
			t.Fatal(err)
		}
	}

	st := state.WrapCore(inmem.NewState(namespace()))

	if owner, err := EnsureOwner(t.Context(), st, first); err != nil || owner != first {
		t.Errorf("a living process got %q, %v", owner, err)
	}

	st = state.WrapCore(inmem.NewState(namespace()))

	plan(st, "r1", first)
	plan(st, "r2", first)
	plan(st, "r3", "")

	if owner, err := EnsureOwner(t.Context(), st, ""); err != nil || owner != first {
		t.Errorf("a new process got %q, %v", owner, err)
	}

	st = state.WrapCore(inmem.NewState(namespace()))

	plan(st, "r1", first)
	plan(st, "r2", second)

	if owner, err := EnsureOwner(t.Context(), st, ""); !errors.Is(err, errOwnersDiffer) {
		t.Errorf("of two owners it chose %q, %v", owner, err)
	}
}
