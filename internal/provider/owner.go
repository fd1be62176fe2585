package provider

import (
	"context"
	"errors"
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

// errOwnersDiffer says that no owner can be chosen for a lost owner resource.
var errOwnersDiffer = errors.New("the owner resource is lost from Omni and the stored plans name several owners, store the right one again")

// EnsureOwner reads the owner of this provider's objects, or makes it. Several
// processes may do so at once: the first write wins and everybody reads it back.
// The resource is never deleted by us, as all marks in the rack hang on it; if
// somebody else did, it is made again as it was: known is the owner that this
// process works for, empty at its start, and the stored plans name it too.
func EnsureOwner(ctx context.Context, st state.State, known string) (string, error) {
	owner, err := readOwner(ctx, st)
	if err == nil || !state.IsNotFoundError(err) {
		return owner, err
	}

	if known == "" {
		if known, err = plannedOwner(ctx, st); err != nil {
			return "", err
		}
	}

	if known == "" {
		known = naming.NewOwner()
	}

	fresh := typed.NewResource[OwnerSpec, ownerExtension](
		metadata(ownerName, ownerID), protobuf.NewResourceSpec(&specs.OwnerSpec{Id: known}))

	if err := st.Create(ctx, fresh); err != nil && !lostRace(err) {
		return "", fmt.Errorf("storing the owner ID in Omni: %w", err)
	}

	return readOwner(ctx, st)
}

// plannedOwner is the one owner that all stored plans name, empty without a plan.
func plannedOwner(ctx context.Context, st state.State) (string, error) {
	all, err := safe.StateList[*Instance](ctx, st, metadata(instanceName, ""))
	if err != nil {
		return "", fmt.Errorf("listing the states of machine requests in Omni: %w", err)
	}

	var owner string

	for res := range all.All() {
		switch planned := res.TypedSpec().Value.GetPlan().GetOwner(); {
		case planned == "" || planned == owner:
		case owner == "":
			owner = planned
		default:
			return "", fmt.Errorf("%w: %s and %s", errOwnersDiffer, owner, planned)
		}
	}

	return owner, nil
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
