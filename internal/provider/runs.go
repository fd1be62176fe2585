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

// Renew stores that this run lives, makes scratch objects in the projects, and
// how far its uploads are.
func (r *Runs) Renew(ctx context.Context, projects []string, uploads []image.JobInfo) error {
	st := r.State()
	told := describeUploads(uploads)
	projects = slices.Sorted(slices.Values(projects))

	current, err := safe.StateGet[*Run](ctx, st, metadata(runName, r.ID))
	if state.IsNotFoundError(err) {
		fresh := typed.NewResource[RunSpec, runExtension](metadata(runName, r.ID),
			protobuf.NewResourceSpec(&specs.RunSpec{Sequence: 1, ProjectIds: projects, Uploads: told}))

		if err = st.Create(ctx, fresh); err == nil {
			return nil
		}
	}

	if err != nil {
		return fmt.Errorf("renewing the import run in Omni: %w", err)
	}

	current.TypedSpec().Value.Sequence++
	current.TypedSpec().Value.ProjectIds = projects
	current.TypedSpec().Value.Uploads = told

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
			Uploads:    readUploads(run.TypedSpec().Value.GetUploads()),
			At:         run.Metadata().Updated(),
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

func describeUploads(jobs []image.JobInfo) []*specs.UploadSpec {
	var all []*specs.UploadSpec

	for _, j := range jobs {
		all = append(all, &specs.UploadSpec{
			Image: &specs.ImagePlan{
				SchematicId: j.Identity.Schematic, TalosVersion: j.Identity.Talos, Architecture: j.Identity.Arch,
				SecureBoot: j.Identity.SecureBoot, FactoryHost: j.Identity.FactoryHost,
			},
			ProjectId: j.ProjectID, Phase: string(j.Phase), Done: j.Done, Total: j.Total, Rate: uint64(max(j.Rate, 0)), Waits: j.Waits,
		})
	}

	return all
}

func readUploads(stored []*specs.UploadSpec) []image.JobInfo {
	var all []image.JobInfo

	for _, u := range stored {
		all = append(all, image.JobInfo{
			Identity: identity(u.GetImage()), ProjectID: u.GetProjectId(), Phase: image.Phase(u.GetPhase()),
			Done: u.GetDone(), Total: u.GetTotal(), Rate: float64(u.GetRate()), Waits: u.GetWaits(),
		})
	}

	return all
}
