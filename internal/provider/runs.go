package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

// Runs keeps the resources by which importing processes tell each other that
// they live. It implements image.Runs.
type Runs struct {
	// State answers the state of the current Omni client.
	State func() state.State
	// ID is this process's run.
	ID string
}

// Renew stores that this run lives and makes scratch objects in the projects.
func (r *Runs) Renew(ctx context.Context, projects []string) error {
	st := r.State()
	projects = slices.Sorted(slices.Values(projects))

	current, err := safe.StateGet[*Run](ctx, st, metadata(runName, r.ID))
	if state.IsNotFoundError(err) {
		fresh := typed.NewResource[RunSpec, runExtension](metadata(runName, r.ID),
			protobuf.NewResourceSpec(&specs.RunSpec{Sequence: 1, ProjectIds: projects}))

		if err = st.Create(ctx, fresh); err == nil {
			return nil
		}
	}

	if err != nil {
		return fmt.Errorf("renewing the import run in Omni: %w", err)
	}

	current.TypedSpec().Value.Sequence++
	current.TypedSpec().Value.ProjectIds = projects

	if err := st.Update(ctx, current); err != nil {
		return fmt.Errorf("renewing the import run in Omni: %w", err)
	}

	return nil
}

// Others lists all runs but this one.
func (r *Runs) Others(ctx context.Context) ([]image.RunInfo, error) {
	all, err := safe.StateList[*Run](ctx, r.State(), metadata(runName, ""))
	if err != nil {
		return nil, fmt.Errorf("listing import runs in Omni: %w", err)
	}

	var others []image.RunInfo

	for run := range all.All() {
		if run.Metadata().ID() == r.ID {
			continue
		}

		others = append(others, image.RunInfo{
			ID:         run.Metadata().ID(),
			Sequence:   run.TypedSpec().Value.GetSequence(),
			ProjectIDs: run.TypedSpec().Value.GetProjectIds(),
		})
	}

	return others, nil
}

// Forget removes the resource of a run that has left nothing.
func (r *Runs) Forget(ctx context.Context, id string) error {
	pointer := resource.NewMetadata(namespace(), resourceType(runName), id, resource.VersionUndefined)

	if err := r.State().Destroy(ctx, pointer); err != nil && !state.IsNotFoundError(err) {
		return fmt.Errorf("removing import run %s from Omni: %w", id, err)
	}

	return nil
}
