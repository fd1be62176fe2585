package provider

import (
	"slices"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// takeSetGroup puts the machine into the first group of its machine set that has
// a place left, counting all plans: a place is free again when its plan is gone.
// A request that belongs to no set has nobody to be kept apart from.
func (p *Provisioner) takeSetGroup(plan *specs.Plan, class machineclass.Class, set string, others []*specs.Plan) error {
	plan.SetGroup = nil

	if class.SetGroup == machineclass.GroupNone || set == "" {
		return nil
	}

	taken := map[uint32]int{}
	total := 0

	for _, o := range others {
		if g := o.GetSetGroup(); g.GetSet() == set && g.GetPolicy() == class.SetGroup && o.GetProjectId() == plan.GetProjectId() {
			taken[g.GetNumber()]++
			total++
		}
	}

	if err := class.CheckSetSize(total + 1); err != nil {
		return &instance.Mend{Reason: "machine class: " + err.Error(), Cause: err}
	}

	number := uint32(0)
	for taken[number] >= machineclass.MaxSetGroupMembers {
		number++
	}

	plan.SetGroup = &specs.SetGroupPlan{
		Set: set, Policy: class.SetGroup, Number: number,
		Name: naming.SetGroup(p.Owner, providerID(), set, class.SetGroup, number),
	}

	return nil
}

// shares says whether a class has its machines share something, so that each
// plan must know the others.
func shares(class machineclass.Class) bool {
	return class.SetGroup != machineclass.GroupNone ||
		slices.ContainsFunc(class.NICs, func(n machineclass.NIC) bool { return len(n.Addresses) > 0 }) ||
		slices.ContainsFunc(class.ExternalIPs, machineclass.ExternalIP.Listed)
}
