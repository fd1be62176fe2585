package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// deprovision removes what was made for the request. Omni has reset the node
// before, or given it up.
func (p *Provisioner) deprovision(ctx context.Context, logger *zap.Logger, res *Instance, request *infra.MachineRequest) error {
	spec := res.TypedSpec().Value

	if err := p.notPublished(ctx, request.Metadata().ID()); err != nil {
		return err
	}

	if !instance.Planned(spec) {
		return p.byMark(ctx, logger, res, request)
	}

	if otherRequest(spec.GetPlan(), request.Metadata().ID()) {
		// Somebody has put a state where it does not belong. What it names is not
		// this request's; the project in it may hold something of it all the same.
		if err := p.byMark(ctx, logger, res, request); err != nil {
			return err
		}

		plan := &specs.Plan{
			Format: spec.GetPlan().GetFormat(), RequestId: request.Metadata().ID(), Owner: spec.GetPlan().GetOwner(),
			SiloId: spec.GetPlan().GetSiloId(), ProjectId: spec.GetPlan().GetProjectId(), ProjectName: spec.GetPlan().GetProjectName(),
		}

		return p.remove(ctx, logger, &specs.InstanceSpec{Plan: plan})
	}

	return p.remove(ctx, logger, spec)
}

func (p *Provisioner) remove(ctx context.Context, logger *zap.Logger, spec *InstanceState) error {
	if err := p.mine(ctx, spec.GetPlan(), spec.GetPlan().GetRequestId()); err != nil {
		return err
	}

	if err := p.Machines.Remove(ctx, spec); err != nil {
		return err
	}

	p.refusals.forget(spec.GetPlan().GetRequestId())
	logger.Info("nothing of the machine is left in the rack", idsOf(spec, zap.String("oxide.project.id", spec.GetPlan().GetProjectId()))...)

	return nil
}

// byMark removes what bears the request's mark in the project of its class, and
// in any project if the request's state was lost: the class's may have been renamed
// since, and have left its name to another.
func (p *Provisioner) byMark(ctx context.Context, logger *zap.Logger, res *Instance, request *infra.MachineRequest) error {
	if remade(res, request) {
		all, err := p.Silo.ListProjects(ctx)

		switch {
		case err == nil:
			for i := range all {
				if err := p.remove(ctx, logger, markedIn(request, &all[i])); err != nil {
					return err
				}
			}

			return nil
		case rack.ClassOf(err) != rack.ClassForbidden:
			return err
		}
	}

	found, err := p.planless(ctx, res, request)
	if err != nil || found == nil {
		return err
	}

	return p.remove(ctx, logger, found)
}

// markedIn is a state for whatever bears the request's mark in a project.
func markedIn(request *infra.MachineRequest, project *oxide.Project) *InstanceState {
	return &specs.InstanceSpec{Plan: &specs.Plan{
		RequestId: request.Metadata().ID(), ProjectId: project.Id, ProjectName: string(project.Name),
	}}
}

// planless answers for a request whose state holds no plan. Nothing is made
// before the plan is stored, but the state of a living request may have been
// removed and made again, empty, by hand; then objects are found by their marks
// in the project of the class. A class without a usable project never had any.
func (p *Provisioner) planless(ctx context.Context, res *Instance, request *infra.MachineRequest) (*InstanceState, error) {
	class, err := machineclass.Parse(request.TypedSpec().Value.GetProviderData())
	if err != nil {
		return nil, nil //nolint:nilerr // such a class was refused before anything was made
	}

	project, err := p.Silo.ViewProject(ctx, class.Project)
	if rack.ClassOf(err) == rack.ClassGone {
		return nil, p.projectNeverWas(ctx, class.Project, res, request)
	}

	if err != nil {
		return nil, err
	}

	return markedIn(request, project), nil
}

// remadeAfter is how much younger than its request a state is that was removed
// and made again: the SDK makes it with the request's first step.
const remadeAfter = 10 * time.Minute

// remade says that a request has lost its state, and maybe a plan with it.
func remade(res *Instance, request *infra.MachineRequest) bool {
	return res.Metadata().Created().Sub(request.Metadata().Created()) >= remadeAfter
}

// projectNeverWas returns nil when the class's project can not hold anything of
// the request. A 404 may also be a role that was lost; for a state that is as
// old as its request that makes no difference, as its plan was never made.
func (p *Provisioner) projectNeverWas(ctx context.Context, project string, res *Instance, request *infra.MachineRequest) error {
	if !remade(res, request) {
		return nil
	}

	all, err := p.Silo.ListProjects(ctx)
	if rack.ClassOf(err) == rack.ClassForbidden {
		return &instance.Wait{
			Reason: fmt.Sprintf("the request's state was lost and project %q can not be read: give the daemon's token a role in it", project),
			After:  time.Minute, Cause: err,
		}
	}

	if err != nil {
		return err
	}

	for i := range all {
		if string(all[i].Name) == project || all[i].Id == project {
			return &instance.Wait{Reason: fmt.Sprintf("the rack lists project %q but does not show it", project), After: time.Minute}
		}
	}

	return nil
}
