package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/infra/provision"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// InstanceState is the stored state of a request.
type InstanceState = specs.InstanceSpec

const (
	// planFormat is the newest format of a plan that this version knows.
	planFormat   = 2
	architecture = "amd64"
	// schematicDeadline bounds the registration of a schematic: the SDK has no
	// limit and Omni's is half an hour.
	schematicDeadline = 30 * time.Second
)

// plan writes down what will be made. A plan that exists is kept: later steps
// carry it out, whatever the class has become meanwhile.
func (p *Provisioner) plan(ctx context.Context, logger *zap.Logger, pctx Context) error {
	reading, cancel := context.WithTimeout(ctx, omniDeadline)
	request, err := safe.StateGetByID[*infra.MachineRequest](reading, p.State(), pctx.GetRequestID())

	cancel()

	if err != nil {
		return &instance.Wait{Reason: "reading the machine request from Omni", After: 5 * time.Second, Cause: err}
	}

	spec, hash := pctx.State.TypedSpec().Value, requestHash(request.TypedSpec().Value)

	if stored := spec.GetPlan(); stored != nil {
		if stored.GetRequestId() != pctx.GetRequestID() || stored.GetRequestHash() != hash {
			return &instance.Mend{Reason: "the stored plan is that of another request: delete this request, Omni makes a new one"}
		}

		return p.mine(ctx, stored, pctx.GetRequestID())
	}

	if err := p.notPublished(ctx, pctx.GetRequestID()); err != nil {
		return err
	}

	plan, err := p.draft(ctx, logger, pctx, request)
	if err != nil {
		return err
	}

	plan.RequestHash = hash
	plan.PlannedAt = timestamppb.Now()
	spec.Plan = plan

	p.Machines.Arrived(pctx.GetRequestID(), request.Metadata().Created())

	logger.Info("planned", zap.String("oxide.project.name", plan.GetProjectName()), zap.String("oxide.instance.name", plan.GetInstanceName()),
		zap.String("talos.version", plan.GetImage().GetTalosVersion()), zap.String("talos.schematic", plan.GetImage().GetSchematicId()))

	// Here and not where the version is checked: a plan is tried until it can be
	// made, and warned of once.
	if v, err := talos.ParseVersion(plan.GetImage().GetTalosVersion()); err == nil && v.Warning() != "" {
		logger.Warn(v.Warning(), zap.String("talos.version", v.String()))
	}

	return nil
}

// draft is the plan for a request as it would be made now. It changes nothing,
// but for the schematic, which Omni registers at its factory.
func (p *Provisioner) draft(ctx context.Context, logger *zap.Logger, pctx Context, request *infra.MachineRequest) (*specs.Plan, error) {
	class, err := machineclass.Parse(request.TypedSpec().Value.GetProviderData())
	if err == nil {
		err = class.NotYet()
	}

	if err != nil {
		logger.Debug("the class is wrong", zap.Error(err))

		return nil, &instance.Mend{Reason: "machine class: " + fitting(err, maxText-len("machine class: ")), Cause: err}
	}

	talosVersion, err := checkTalos(request.TypedSpec().Value.GetTalosVersion())
	if err != nil {
		return nil, err
	}

	plan := &specs.Plan{
		Format: 1, RequestId: pctx.GetRequestID(), Owner: p.Owner,
		InstanceName: naming.Instance(pctx.GetRequestID()),
		Image:        &specs.ImagePlan{TalosVersion: talosVersion.String(), Architecture: architecture},
	}

	shape(plan, class)

	if err := p.resolveOnce(ctx, plan, requestHash(request.TypedSpec().Value), class); err != nil {
		return nil, err
	}

	if err := p.planImage(ctx, pctx, plan.GetImage()); err != nil {
		return nil, err
	}

	// Last: what others must not take waits for nothing else.
	if err := p.shareOut(ctx, request, plan, class); err != nil {
		return nil, err
	}

	plan.Format = formatOf(plan)

	return plan, nil
}

// shareOut gives the plan its part of what the class' machines share.
func (p *Provisioner) shareOut(ctx context.Context, request *infra.MachineRequest, plan *specs.Plan, class machineclass.Class) error {
	if !shares(class) {
		return nil
	}

	set, _ := request.Metadata().Labels().Get(omni.LabelMachineRequestSet)

	takeAddresses, err := p.addressTaker(ctx, plan, class)
	if err != nil {
		return err
	}

	return p.allot(ctx, plan, func(others []*specs.Plan) error {
		if err := p.takeSetGroup(plan, class, set, others); err != nil {
			return err
		}

		return takeAddresses(others)
	})
}

// fitting is as many mistakes of a class as one line holds, and how many more
// there are.
func fitting(err error, room int) string {
	mistakes, ok := errors.AsType[machineclass.Mistakes](err)
	if !ok || len(err.Error()) <= room {
		return err.Error()
	}

	const more = "; and 99 more"

	text := mistakes[0].String()

	for i, m := range mistakes[1:] {
		if len(text)+len("; ")+len(m.String()) > room-len(more) {
			return fmt.Sprintf("%s; and %d more", text, len(mistakes)-i-1)
		}

		text += "; " + m.String()
	}

	return text
}

// checkFormat refuses a plan that a newer version made: this one would not carry
// out all of it, nor take all of it down.
func checkFormat(plan *specs.Plan) error {
	if plan.GetFormat() > planFormat {
		return &instance.Mend{Reason: fmt.Sprintf("the request's plan was made by a newer version of the provider (format %d, this one knows %d): run that version",
			plan.GetFormat(), planFormat)}
	}

	return nil
}

func checkTalos(asked string) (talos.Version, error) {
	v, err := talos.ParseVersion(asked)
	if err == nil {
		err = v.Supported()
	}

	if err != nil {
		return talos.Version{}, &instance.Mend{Reason: err.Error(), Cause: err}
	}

	return v, nil
}

// planImage registers the schematic and fixes the image's identity.
func (p *Provisioner) planImage(ctx context.Context, pctx Context, image *specs.ImagePlan) error {
	base, err := p.Factory(ctx)
	if err != nil {
		return &instance.Wait{Reason: "asking Omni for its image factory", After: 5 * time.Second, Cause: err}
	}

	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return &instance.Mend{Reason: fmt.Sprintf("the image factory's address %q is no URL", base), Cause: err}
	}

	image.FactoryHost = u.Host
	image.SchematicId, err = p.registerSchematic(ctx, pctx, image)

	return err
}

// registerSchematic has Omni register the request's schematic at its factory.
// The factory may add to it, so the ID is the one it answers. Our logger is not
// handed on: the SDK would log the whole schematic each time.
func (p *Provisioner) registerSchematic(ctx context.Context, pctx Context, image *specs.ImagePlan) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, schematicDeadline)
	defer cancel()

	// Clones: the SDK sorts in place.
	id, err := pctx.GenerateSchematicID(ctx, zap.NewNop(), provision.WithoutConnectionParams(),
		provision.WithExtraExtensions(slices.Clone(image.GetExtensions())...), provision.WithExtraKernelArgs(slices.Clone(image.GetKernelArgs())...))
	if err != nil {
		return "", &instance.Wait{Reason: "registering the schematic through Omni: " + grpcReason(err), After: spread(15 * time.Second), Cause: err}
	}

	return id, nil
}

// requestHash is a stable digest of what the request asks for.
func requestHash(r *omnispecs.MachineRequestSpec) string {
	type meta struct {
		Key   uint32
		Value string
	}

	form := struct {
		Talos, Data, OverlayName, OverlayImage string
		Extensions, KernelArgs                 []string
		Meta                                   []meta
		Tunnel                                 int32
	}{
		Talos: r.GetTalosVersion(), Data: r.GetProviderData(),
		OverlayName: r.GetOverlay().GetName(), OverlayImage: r.GetOverlay().GetImage(),
		// The SDK sorts these two in place when it makes the schematic.
		Extensions: slices.Sorted(slices.Values(r.GetExtensions())),
		KernelArgs: slices.Sorted(slices.Values(r.GetKernelArgs())),
		Tunnel:     int32(r.GetGrpcTunnel()),
	}

	for _, v := range r.GetMetaValues() {
		form.Meta = append(form.Meta, meta{v.GetKey(), v.GetValue()})
	}

	text, err := json.Marshal(form)
	if err != nil {
		// Strings and numbers always marshal.
		panic(err)
	}

	sum := sha256.Sum256(text)

	return "1:" + hex.EncodeToString(sum[:])
}
