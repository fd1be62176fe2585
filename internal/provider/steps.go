package provider

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// image waits for the plan's image. It asks and goes; the upload is nobody's
// step.
func (p *Provisioner) image(ctx context.Context, logger *zap.Logger, pctx Context) error {
	return p.ensureImage(ctx, logger, pctx)
}

func (p *Provisioner) ensureImage(ctx context.Context, logger *zap.Logger, pctx Context) error {
	spec := pctx.State.TypedSpec().Value
	if spec.GetImage().GetId() != "" {
		return nil
	}

	plan := spec.GetPlan()
	if plan == nil {
		return errNoPlan
	}

	status, err := p.Images.Ask(ctx, image.Want{
		Identity: identity(plan.GetImage()), ProjectID: plan.GetProjectId(), DiskBytes: plan.GetBootDisk().GetSizeBytes(),
		Scope: image.Scope(plan.GetImage().GetScope()),
	})
	if err != nil {
		return err
	}

	if status.SchematicUnknown {
		id, err := p.registerSchematic(context.WithValue(ctx, anew{}, true), pctx, plan.GetImage())
		if err != nil {
			return err
		}

		if id != plan.GetImage().GetSchematicId() {
			return &instance.Mend{Reason: "the image factory now gives the schematic another ID: delete this request, Omni makes a new one"}
		}

		logger.Info("registered the schematic again", zap.String("talos.schematic", id))
	}

	if !status.Ready {
		return &instance.Wait{Reason: status.Reason, After: status.RetryIn}
	}

	spec.Image = &specs.ImageRef{Id: status.ImageID, SizeBytes: status.SizeBytes}

	return nil
}

func identity(i *specs.ImagePlan) naming.ImageIdentity {
	return naming.ImageIdentity{
		Schematic: i.GetSchematicId(), Talos: i.GetTalosVersion(), Arch: i.GetArchitecture(),
		SecureBoot: i.GetSecureBoot(), FactoryHost: i.GetFactoryHost(),
	}
}

var errNoPlan = &instance.Mend{Reason: "the request's plan is lost: delete this request, Omni makes a new one"}

// instance creates the instance and records its IDs.
func (p *Provisioner) instance(ctx context.Context, logger *zap.Logger, pctx Context) error {
	spec := pctx.State.TypedSpec().Value

	err := p.ensureInstance(ctx, logger, pctx)

	// The IDs are stored by the end of the step as well as by another run of it.
	if w, ok := instance.AsWait(err); ok && w.Reason == "" && instance.Known(spec) {
		return nil
	}

	return err
}

func (p *Provisioner) ensureInstance(ctx context.Context, logger *zap.Logger, pctx Context) error {
	spec := pctx.State.TypedSpec().Value
	before := spec.GetInstanceId()

	if err := p.ensureImage(ctx, logger, pctx); err != nil {
		return err
	}

	// Also here, right before the first attempt: between two lives of ours the
	// published provider may have run.
	if spec.GetInstanceId() == "" && spec.GetCreate() == nil {
		if err := p.notPublished(ctx, pctx.GetRequestID()); err != nil {
			return err
		}
	}

	if err := p.keepAddresses(ctx, logger, pctx); err != nil {
		return err
	}

	err := p.Machines.Create(ctx, spec, userData(pctx.ConnectionParams.JoinConfig, spec.GetPlan()))

	if id := spec.GetInstanceId(); id != "" && id != before {
		logger.Info("instance created", idsOf(spec, zap.String("oxide.instance.name", spec.GetPlan().GetInstanceName()),
			zap.String("oxide.project.id", spec.GetPlan().GetProjectId()))...)
	}

	if errors.Is(err, instance.ErrImageGone) {
		logger.Warn("the image has vanished from the rack, making it again", idsOf(spec)...)
		p.Images.Forget(spec.GetImage().GetId())

		spec.Image = nil

		return &instance.Wait{}
	}

	if errors.Is(err, instance.ErrVanished) {
		return p.makeAgain(ctx, logger, spec)
	}

	return err
}

// userData is what the guest reads at its first boot: Omni's join config, and the
// CAs that it must trust before it joins.
func userData(join string, plan *specs.Plan) string {
	roots := plan.GetTrustedRoots()
	if roots != "" && !strings.HasSuffix(join, "\n") {
		join += "\n"
	}

	return join + roots
}

// config writes the config patches of the instance into Omni. They exist before
// the first start: kubelet registers a node with its provider ID once.
func (p *Provisioner) config(ctx context.Context, _ *zap.Logger, pctx Context) error {
	return p.ensureConfig(ctx, pctx)
}

func (p *Provisioner) ensureConfig(ctx context.Context, pctx Context) error {
	spec := pctx.State.TypedSpec().Value
	if spec.GetPatchedInstanceId() == spec.GetInstanceId() {
		return nil
	}

	wanted, err := patches(spec.GetPlan(), spec.GetInstanceId())
	if err != nil {
		return err
	}

	// Each is written over what it may have been before.
	for _, w := range wanted {
		if err := pctx.CreateConfigPatch(ctx, w.name, w.data); err != nil {
			return &instance.Wait{Reason: "writing the config patch into Omni: " + grpcReason(err), After: spread(5 * time.Second), Cause: err}
		}
	}

	spec.PatchedInstanceId = spec.GetInstanceId()

	return nil
}

// start starts the instance and is done when it was seen running. An instance
// that is proven gone by then is made again, with its own provider ID.
func (p *Provisioner) start(ctx context.Context, logger *zap.Logger, pctx Context) error {
	spec := pctx.State.TypedSpec().Value

	if err := p.ensureInstance(ctx, logger, pctx); err != nil {
		return err
	}

	if spec.GetPatchedInstanceId() != spec.GetInstanceId() {
		if err := p.ensureConfig(ctx, pctx); err != nil {
			return err
		}

		return &instance.Wait{}
	}

	err := p.Machines.Start(ctx, spec)
	if errors.Is(err, instance.ErrVanished) {
		return p.makeAgain(ctx, logger, spec)
	}

	if err == nil {
		p.gauge.provisioned(spec.GetPlan().GetPlannedAt())
		logger.Info("instance is running", idsOf(spec)...)
	}

	return err
}

func (p *Provisioner) makeAgain(ctx context.Context, logger *zap.Logger, spec *InstanceState) error {
	logger.Warn("the instance has vanished from the rack before it ran, making another", idsOf(spec)...)

	return p.Machines.Forget(ctx, spec)
}
