package provider

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// usable refuses a plan that the rack would not carry out, as far as that can be
// seen before anything is uploaded or made.
func (p *Provisioner) usable(ctx context.Context, plan *specs.Plan, class machineclass.Class) error {
	if err := p.poolForSNAT(ctx, plan); err != nil {
		return err
	}

	if err := p.roomInGroups(ctx, plan, class); err != nil {
		return err
	}

	if p.previewing {
		return nil
	}

	return p.quotaFor(ctx, plan)
}

// poolLife is for how long a default pool that was seen is believed to be there: an
// operator of the rack links one once. One that is missing is looked for again.
const poolLife = 10 * time.Minute

// poolForSNAT: every machine with an IPv4 interface takes a part of an address of
// the silo's default IPv4 pool, whether or not it is to be reached from outside.
func (p *Provisioner) poolForSNAT(ctx context.Context, plan *specs.Plan) error {
	if !slices.ContainsFunc(plan.GetNics(), func(n *specs.NicPlan) bool { return n.GetIpConfig() != machineclass.IPv6 }) {
		return nil
	}

	if at := p.poolSeen.Load(); at != nil && time.Since(*at) < poolLife {
		return nil
	}

	pools, err := p.sharedSilo().ListIPPools(ctx)
	if err != nil {
		return err
	}

	if slices.ContainsFunc(pools, func(o oxide.SiloIpPool) bool {
		return o.IsDefault != nil && *o.IsDefault && o.IpVersion == oxide.IpVersionV4 && o.PoolType == oxide.IpPoolTypeUnicast
	}) {
		now := time.Now()
		p.poolSeen.Store(&now)

		return nil
	}

	return &instance.Mend{Reason: "network_interfaces: the silo has no default IPv4 address pool, which every machine with an IPv4 interface needs: " +
		"have the rack's operator link one as default"}
}

// roomInGroups: a group of the rack has a limit of members, whoever they are.
func (p *Provisioner) roomInGroups(ctx context.Context, plan *specs.Plan, class machineclass.Class) error {
	for i, id := range plan.GetAntiAffinityGroupIds() {
		members, err := p.sharedSilo().ListAntiAffinityGroupMembers(ctx, id)
		if err != nil {
			return missing(err, "anti_affinity_groups[%d]: project %q has no group %q any more", i, plan.GetProjectName(), class.AntiAffinityGroups[i])
		}

		if n := len(members); n >= machineclass.MaxSetGroupMembers {
			return &instance.Mend{Reason: fmt.Sprintf("anti_affinity_groups[%d]: group %q has %d members, and the rack's limit is %d: take another one",
				i, class.AntiAffinityGroups[i], n, machineclass.MaxSetGroupMembers)}
		}
	}

	return nil
}

// resources are what the silo's quota counts.
type resources struct {
	cpus, memory, storage uint64 // vCPUs, and bytes
}

// needs are what a machine takes of the quota: storage from its create on, local
// disks included, vCPUs and memory while it runs.
func needs(plan *specs.Plan) resources {
	r := resources{cpus: uint64(plan.GetCpus()), memory: plan.GetMemoryBytes(), storage: plan.GetBootDisk().GetSizeBytes()}

	for _, d := range plan.GetDisks() {
		r.storage += d.GetSizeBytes()
	}

	return r
}

// siloQuota is the silo's quota, and what is free of it.
func siloQuota(u *oxide.Utilization) (whole, free resources) {
	left := func(capacity, provisioned uint64) uint64 { return capacity - min(capacity, provisioned) }

	whole = resources{count(u.Capacity.Cpus), uint64(u.Capacity.Memory), uint64(u.Capacity.Storage)}

	return whole, resources{
		left(whole.cpus, count(u.Provisioned.Cpus)), left(whole.memory, uint64(u.Provisioned.Memory)), left(whole.storage, uint64(u.Provisioned.Storage)),
	}
}

func count(n *int) uint64 {
	if n == nil || *n < 0 {
		return 0
	}

	return uint64(*n)
}

// quotaFor refuses a machine that the silo's quota never has room for, and waits
// while others take too much of it. A quota that can not be read holds nobody
// back.
func (p *Provisioner) quotaFor(ctx context.Context, plan *specs.Plan) error {
	u, err := p.sharedSilo().Utilization(ctx)
	if err != nil {
		return nil //nolint:nilerr // advice only: the rack says so when the machine is made
	}

	need := needs(plan)
	whole, free := siloQuota(u)

	for _, q := range []struct {
		field             string
		need, whole, free uint64
		text              func(uint64) string
	}{
		{"cpus", need.cpus, whole.cpus, free.cpus, vCPUs},
		{"memory", need.memory, whole.memory, free.memory, func(n uint64) string { return inGiB(n) + " of memory" }},
		{"boot_disk_size and disks", need.storage, whole.storage, free.storage, func(n uint64) string { return inGiB(n) + " of storage" }},
	} {
		if q.need > q.whole {
			return &instance.Mend{Reason: fmt.Sprintf("%s: the machine needs %s, and the silo's whole quota is %s", q.field, q.text(q.need), q.text(q.whole))}
		}

		if q.need > q.free {
			return &instance.Wait{
				Reason: fmt.Sprintf("waiting for quota: the machine needs %s, and the silo has %s free; free some or ask for a larger quota", q.text(q.need), q.text(q.free)),
				After:  spread(30 * time.Second),
			}
		}
	}

	return nil
}

func vCPUs(n uint64) string {
	if n == 1 {
		return "1 vCPU"
	}

	return fmt.Sprintf("%d vCPUs", n)
}

// inGiB is whole where it can be.
func inGiB(n uint64) string {
	if n%machineclass.GiB == 0 {
		return fmt.Sprintf("%d GiB", n/machineclass.GiB)
	}

	return fmt.Sprintf("%.1f GiB", float64(n)/machineclass.GiB)
}
