package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lifetime"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

var _ lifetime.Omni = (*Records)(nil)

// Wants implements lifetime.Omni.
func (r *Records) Wants(ctx context.Context) ([]lifetime.Want, error) {
	requests, err := safe.StateListAll[*infra.MachineRequest](ctx, r.State())
	if err != nil {
		return nil, fmt.Errorf("listing machine requests in Omni: %w", err)
	}

	// After the requests: a plan that is made meanwhile is for one of them, or for
	// one that is newer than the look.
	states, _, err := listStates(ctx, r.State())
	if err != nil {
		return nil, err
	}

	var (
		wants   []lifetime.Want
		planned = map[string]bool{}
	)

	for _, s := range states {
		spec := s.TypedSpec().Value
		if spec.GetPlan().GetImage() == nil {
			continue
		}

		id := identity(spec.GetPlan().GetImage())
		planned[s.Metadata().ID()] = true
		wants = append(wants, lifetime.Want{RequestID: s.Metadata().ID(), ImageID: spec.GetImage().GetId(), Identity: &id})
	}

	for q := range requests.All() {
		if planned[q.Metadata().ID()] {
			continue
		}

		w := lifetime.Want{RequestID: q.Metadata().ID()}
		if v, err := talos.ParseVersion(q.TypedSpec().Value.GetTalosVersion()); err == nil {
			w.Talos = v.String()
		}

		wants = append(wants, w)
	}

	return wants, nil
}

// Places implements lifetime.Omni.
func (r *Records) Places(ctx context.Context) ([]string, error) {
	requests, err := r.Requests(ctx)
	if err != nil {
		return nil, err
	}

	states, _, err := listStates(ctx, r.State())
	if err != nil {
		return nil, err
	}

	runs, err := r.ImportRuns(ctx)
	if err != nil {
		return nil, err
	}

	var all []string

	for _, q := range requests {
		all = append(all, q.Project)
	}

	for _, s := range states {
		all = append(all, s.TypedSpec().Value.GetPlan().GetProjectId())
	}

	for _, run := range runs {
		all = append(all, run.ProjectIDs...)
	}

	return all, nil
}

// ImageUses implements lifetime.Omni.
func (r *Records) ImageUses(ctx context.Context) ([]lifetime.Use, error) {
	all, err := safe.StateList[*ImageUse](ctx, r.State(), metadata(imageUseName, ""))
	if err != nil {
		return nil, fmt.Errorf("listing the use of images in Omni: %w", err)
	}

	var uses []lifetime.Use

	for u := range all.All() {
		uses = append(uses, lifetime.Use{
			ImageID: u.Metadata().ID(), ProjectID: u.TypedSpec().Value.GetProjectId(), At: u.TypedSpec().Value.GetLastUsed().AsTime(),
		})
	}

	return uses, nil
}

// RecordUse implements lifetime.Omni.
func (r *Records) RecordUse(ctx context.Context, u lifetime.Use) error {
	spec := &specs.ImageUseSpec{LastUsed: timestamppb.New(u.At), ProjectId: u.ProjectID}

	current, err := safe.StateGet[*ImageUse](ctx, r.State(), metadata(imageUseName, u.ImageID))

	switch {
	case state.IsNotFoundError(err):
		err = r.State().Create(ctx, typed.NewResource[ImageUseSpec, imageUseExtension](
			metadata(imageUseName, u.ImageID), protobuf.NewResourceSpec(spec)))
	case err == nil:
		current.TypedSpec().Value = spec
		err = r.State().Update(ctx, current)
	}

	// Whoever was quicker has seen it in use at the same time.
	if err != nil && !lostRace(err) && !state.IsNotFoundError(err) {
		return fmt.Errorf("recording the use of an image in Omni: %w", err)
	}

	return nil
}

// ForgetUse implements lifetime.Omni.
func (r *Records) ForgetUse(ctx context.Context, imageID string) error {
	md := metadata(imageUseName, imageID)

	if err := r.State().Destroy(ctx, &md); err != nil && !state.IsNotFoundError(err) {
		return fmt.Errorf("forgetting the use of an image in Omni: %w", err)
	}

	return nil
}

// prune is the loop that removes unused images.
func (d *Daemon) prune(ctx context.Context) {
	if d.opts.Janitor != JanitorOn && d.opts.Janitor != JanitorDryRun {
		return
	}

	keep := d.opts.KeepImages
	if keep.For == 0 {
		keep.For = lifetime.Forever
	}

	lifetime.New(lifetime.Config{
		Omni: &Records{State: func() state.State { return state.WrapCore(d.fenced(d.state())) }}, Rack: d.strictRack(), Images: d.images,
		Owner: d.work.Owner, Provider: d.opts.ProviderID, Keep: keep, DryRun: d.opts.Janitor == JanitorDryRun,
		Log: d.opts.Logger,
	}).Run(ctx)
}

// LifetimeOptions are what a person's look at images is made of.
type LifetimeOptions struct {
	Rack *rack.Client
	// Projects are looked at too, by name or ID.
	Projects []string
	Keep     lifetime.Keep
	Logger   *zap.Logger
}

// Lifetime makes a lifetime of images for a person, whose Find and Remove are to
// be used.
func (c *Connection) Lifetime(ctx context.Context, opts LifetimeOptions) (*lifetime.Lifetime, error) {
	owner, err := c.Owner(ctx)
	if err != nil {
		return nil, err
	}

	return lifetime.New(lifetime.Config{
		Omni: c.Records(), Rack: opts.Rack, Owner: owner, Provider: providerID(),
		Projects: opts.Projects, Keep: opts.Keep, Log: opts.Logger,
	}), nil
}

// used records that a person has just brought an image.
func (c *Connection) used(ctx context.Context, imageID, projectID string) error {
	return c.Records().RecordUse(ctx, lifetime.Use{ImageID: imageID, ProjectID: projectID, At: time.Now()})
}
