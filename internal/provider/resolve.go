package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// resolveOnce resolves unless the same has just been found missing for another
// request.
func (p *Provisioner) resolveOnce(ctx context.Context, plan *specs.Plan, class machineclass.Class) error {
	if p.previewing {
		return p.resolve(ctx, plan, class)
	}

	names := fmt.Sprintf("%q %+v %q %+v", class.Project, class.NICs, class.AntiAffinityGroups, class.ExternalIPs)

	if why, _ := p.missing.Ask(names, plan.GetRequestId()); why != nil {
		return why
	}

	err := p.resolve(ctx, plan, class)

	switch m, ok := errors.AsType[*instance.Mend](err); {
	case err == nil:
		p.missing.Done(names, plan.GetRequestId())
	case ok && rack.ClassOf(m.Cause) == rack.ClassGone:
		p.missing.Failed(names, plan.GetRequestId(), m)
	default:
		p.missing.Leave(plan.GetRequestId())
	}

	return err
}

// resolve looks up everything that the class names. What is missing is named
// with its field, before anything is uploaded or made.
func (p *Provisioner) resolve(ctx context.Context, plan *specs.Plan, class machineclass.Class) error {
	silo, _, err := p.silo(ctx)
	if err != nil {
		return err
	}

	plan.SiloId = silo
	shared := p.sharedSilo()

	project, err := shared.ViewProject(ctx, class.Project)
	if err != nil {
		return missing(err, "project: %q is not in the silo, or the daemon's token has no role in it", class.Project)
	}

	plan.ProjectId, plan.ProjectName = project.Id, string(project.Name)

	for i, n := range class.NICs {
		vpc, err := shared.ViewVPC(ctx, project.Id, n.VPCName)
		if err != nil {
			return missing(err, "network_interfaces[%d].vpc_name: project %q has no VPC %q", i, project.Name, n.VPCName)
		}

		subnet, err := shared.ViewSubnet(ctx, vpc.Id, n.SubnetName)
		if err != nil {
			return missing(err, "network_interfaces[%d].subnet_name: VPC %q has no subnet %q", i, vpc.Name, n.SubnetName)
		}

		if err := checkFixed(i, n, subnet); err != nil {
			return err
		}

		plan.Nics = append(plan.Nics, &specs.NicPlan{
			Name: naming.NIC(i), IpConfig: n.IPConfig,
			VpcName: string(vpc.Name), VpcId: vpc.Id, SubnetName: string(subnet.Name), SubnetId: subnet.Id,
			TransitIps: texts(n.TransitIPs),
		})
	}

	for i, g := range class.AntiAffinityGroups {
		group, err := shared.ViewAntiAffinityGroup(ctx, project.Id, g)
		if err != nil {
			return missing(err, "anti_affinity_groups[%d]: project %q has no group %q", i, project.Name, g)
		}

		plan.AntiAffinityGroupIds = append(plan.AntiAffinityGroupIds, group.Id)
	}

	if err := p.resolveExternal(ctx, plan, class); err != nil {
		return err
	}

	return p.usable(ctx, plan, class)
}

// missing words a look-up that found nothing, and leaves other errors alone.
func missing(err error, format string, args ...any) error {
	if rack.ClassOf(err) != rack.ClassGone {
		return err
	}

	return &instance.Mend{Reason: fmt.Sprintf(format, args...), Cause: err}
}

func texts[T fmt.Stringer](values []T) []string {
	var all []string

	for _, v := range values {
		all = append(all, v.String())
	}

	return all
}
