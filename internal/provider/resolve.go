package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// lacking remembers the requests for which something was missing, as they were.
type lacking struct {
	mu     sync.Mutex
	hashes map[string]string
}

// news says that a request is new here or was changed since it was last asked about.
func (k *lacking) news(requestID, hash string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.hashes == nil {
		k.hashes = map[string]string{}
	}

	before, seen := k.hashes[requestID]
	k.hashes[requestID] = hash

	return !seen || before != hash
}

func (k *lacking) forget(requestID string) {
	k.mu.Lock()
	defer k.mu.Unlock()

	delete(k.hashes, requestID)
}

// resolveOnce resolves unless the same has just been found missing for another
// request. One that is new, or was changed, is looked at in any case: somebody is
// at it, and may have mended what was missing. The looks are shared all the same.
func (p *Provisioner) resolveOnce(ctx context.Context, plan *specs.Plan, hash string, class machineclass.Class) error {
	if p.previewing {
		return p.resolve(ctx, plan, class)
	}

	names := fmt.Sprintf("%q %+v %q %+v", class.Project, class.NICs, class.AntiAffinityGroups, class.ExternalIPs)

	if news := p.lacking.news(plan.GetRequestId(), hash); !news {
		if why, _ := p.missing.Ask(names, plan.GetRequestId()); why != nil {
			return why
		}
	}

	err := p.resolve(ctx, plan, class)

	switch m, ok := errors.AsType[*instance.Mend](err); {
	case err == nil:
		p.lacking.forget(plan.GetRequestId())
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
		subnet, vpcName, err := findSubnet(ctx, shared, project, i, n)
		if err != nil {
			return err
		}

		if err := checkFixed(i, n, subnet); err != nil {
			return err
		}

		plan.Nics = append(plan.Nics, &specs.NicPlan{
			Name: naming.NIC(i), IpConfig: n.IPConfig,
			VpcName: vpcName, VpcId: subnet.VpcId, SubnetName: string(subnet.Name), SubnetId: subnet.Id,
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

// findSubnet looks a subnet up by the names of the class, which is one call; only
// when there is none such, or an ID is given, it is asked which VPC that is.
func findSubnet(ctx context.Context, shared sharedSilo, project *oxide.Project, i int, n machineclass.NIC) (*oxide.VpcSubnet, string, error) {
	var absent error

	if uuid.Validate(n.VPCName) != nil && uuid.Validate(n.SubnetName) != nil {
		var subnet *oxide.VpcSubnet

		if subnet, absent = shared.ViewSubnetOf(ctx, project.Id, n.VPCName, n.SubnetName); rack.ClassOf(absent) != rack.ClassGone {
			return subnet, n.VPCName, absent
		}
	}

	vpc, err := shared.ViewVPC(ctx, project.Id, n.VPCName)
	if err != nil {
		return nil, "", missing(err, "network_interfaces[%d].vpc_name: project %q has no VPC %q", i, project.Name, n.VPCName)
	}

	noSubnet := func(err error) error {
		return missing(err, "network_interfaces[%d].subnet_name: VPC %q has no subnet %q", i, vpc.Name, n.SubnetName)
	}

	if absent != nil {
		return nil, "", noSubnet(absent)
	}

	subnet, err := shared.ViewSubnet(ctx, vpc.Id, n.SubnetName)
	if err != nil {
		return nil, "", noSubnet(err)
	}

	return subnet, string(vpc.Name), nil
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
