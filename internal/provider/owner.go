package provider

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// ownerID is the ID of the one owner resource.
const ownerID = "owner"

// EnsureOwner reads the owner of this provider's objects, or makes it. Several
// processes may do so at once: the first write wins and everybody reads it back.
// The resource is never deleted, as all marks in the rack hang on it.
func EnsureOwner(ctx context.Context, st state.State) (string, error) {
	owner, err := readOwner(ctx, st)
	if err == nil || !state.IsNotFoundError(err) {
		return owner, err
	}

	fresh := typed.NewResource[OwnerSpec, ownerExtension](
		metadata(ownerName, ownerID), protobuf.NewResourceSpec(&specs.OwnerSpec{Id: naming.NewOwner()}))

	if err := st.Create(ctx, fresh); err != nil && !lostRace(err) {
		return "", fmt.Errorf("storing the owner ID in Omni: %w", err)
	}

	return readOwner(ctx, st)
}

func readOwner(ctx context.Context, st state.State) (string, error) {
	o, err := safe.StateGet[*Owner](ctx, st, metadata(ownerName, ownerID))
	if err != nil {
		return "", fmt.Errorf("reading the owner ID from Omni: %w", err)
	}

	return o.TypedSpec().Value.GetId(), nil
}

// lostRace tells that somebody else wrote first. A denied permission looks like
// an owner conflict, and an invalid write like a phase conflict.
func lostRace(err error) bool {
	return state.IsConflictError(err) && !state.IsOwnerConflictError(err) && !state.IsPhaseConflictError(err)
}
