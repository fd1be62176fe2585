package omni

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
)

// reconcileClusters holds a cluster that is torn down until its machine sets
// are gone.
func (c *controllers) reconcileClusters(ctx context.Context) error {
	clusters, err := safe.StateListAll[*omni.Cluster](ctx, c.state)
	if err != nil {
		return err
	}

	for cluster := range clusters.All() {
		if running(cluster) {
			if err := hold(ctx, c.state, cluster, nameCluster); err != nil {
				return err
			}

			continue
		}

		sets, err := safe.StateListAll[*omni.MachineSet](ctx, c.state,
			state.WithLabelQuery(resource.LabelEqual(omni.LabelCluster, cluster.Metadata().ID())))
		if err != nil {
			return err
		}

		all := true

		for set := range sets.All() {
			gone, err := remove(ctx, c.state, set)
			if err != nil {
				return err
			}

			all = all && gone
		}

		if all {
			if err := release(ctx, c.state, cluster, nameCluster); err != nil {
				return err
			}
		}
	}

	return nil
}

// reconcileMachineSets turns each machine set that takes its machines from an
// auto-provision class into a machine request set of the same ID.
func (c *controllers) reconcileMachineSets(ctx context.Context) error {
	sets, err := safe.StateListAll[*omni.MachineSet](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for set := range sets.All() {
		if running(set) {
			errs = errors.Join(errs, c.provisionFor(ctx, set))
		} else {
			errs = errors.Join(errs, c.unprovision(ctx, set))
		}
	}

	return errs
}

func (c *controllers) provisionFor(ctx context.Context, set *omni.MachineSet) error {
	id := set.Metadata().ID()

	allocation := omni.GetMachineAllocation(set)
	if allocation == nil {
		_, err := c.removeByPointer(ctx, omni.NewMachineRequestSet(id).Metadata())

		return err
	}

	if err := hold(ctx, c.state, set, nameMachineProvision); err != nil {
		return err
	}

	cluster, ok, err := get[*omni.Cluster](ctx, c.state, omni.NewCluster(label(set, omni.LabelCluster)).Metadata())
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("machine set %q: its cluster doesn't exist", id))
	}

	class, ok, err := get[*omni.MachineClass](ctx, c.state, omni.NewMachineClass(allocation.GetName()).Metadata())
	if err != nil || !ok {
		return errors.Join(err, fmt.Errorf("machine set %q: machine class %q doesn't exist", id, allocation.GetName()))
	}

	provision := class.TypedSpec().Value.GetAutoProvision()
	if provision == nil {
		return nil
	}

	nodes, err := c.clusterMachinesOf(ctx, id)
	if err != nil {
		return err
	}

	return modify(ctx, c.state, omni.NewMachineRequestSet(id), nameMachineProvision, func(r *omni.MachineRequestSet) error {
		spec := r.TypedSpec().Value
		spec.ProviderId = provision.GetProviderId()
		spec.KernelArgs = slices.Clone(provision.GetKernelArgs())
		spec.MetaValues = provision.GetMetaValues()
		spec.ProviderData = provision.GetProviderData()
		spec.GrpcTunnel = provision.GetGrpcTunnel()
		spec.TalosVersion = cluster.TypedSpec().Value.GetTalosVersion()
		// A machine that is still in the set is not given back.
		spec.MachineCount = max(machineCount(allocation), int32(len(nodes)))

		return nil
	})
}

// machineCount is the size that a class is asked for. With "unlimited" that is
// none: there is nothing to be unlimited of.
func machineCount(allocation *specs.MachineSetSpec_MachineAllocation) int32 {
	if allocation.GetAllocationType() == specs.MachineSetSpec_MachineAllocation_Unlimited {
		return 0
	}

	return int32(allocation.GetMachineCount())
}

func (c *controllers) unprovision(ctx context.Context, set *omni.MachineSet) error {
	gone, err := c.removeByPointer(ctx, omni.NewMachineRequestSet(set.Metadata().ID()).Metadata())
	if err != nil || !gone {
		return err
	}

	return release(ctx, c.state, set, nameMachineProvision)
}

func (c *controllers) clusterMachinesOf(ctx context.Context, set resource.ID) ([]*omni.ClusterMachine, error) {
	machines, err := safe.StateListAll[*omni.ClusterMachine](ctx, c.state, state.WithLabelQuery(resource.LabelEqual(omni.LabelMachineSet, set)))
	if err != nil {
		return nil, err
	}

	return slices.Collect(machines.All()), nil
}

// reconcileMachineSetStatuses counts.
func (c *controllers) reconcileMachineSetStatuses(ctx context.Context) error {
	sets, err := safe.StateListAll[*omni.MachineSet](ctx, c.state)
	if err != nil {
		return err
	}

	for set := range sets.All() {
		if err := c.countMachineSet(ctx, set); err != nil {
			return err
		}
	}

	return nil
}

func (c *controllers) countMachineSet(ctx context.Context, set *omni.MachineSet) error {
	members, err := c.clusterMachinesOf(ctx, set.Metadata().ID())
	if err != nil {
		return err
	}

	if !running(set) {
		if len(members) > 0 {
			return nil
		}

		if _, err := c.removeByPointer(ctx, omni.NewMachineSetStatus(set.Metadata().ID()).Metadata()); err != nil {
			return err
		}

		return release(ctx, c.state, set, nameMachineSetStatus)
	}

	if err := hold(ctx, c.state, set, nameMachineSetStatus); err != nil {
		return err
	}

	counted := &specs.Machines{Total: uint32(len(members))}
	if allocation := omni.GetMachineAllocation(set); allocation != nil {
		counted.Requested = uint32(machineCount(allocation))
	}

	for _, member := range members {
		status, ok, err := get[*omni.ClusterMachineStatus](ctx, c.state, omni.NewClusterMachineStatus(member.Metadata().ID()).Metadata())
		if err != nil {
			return err
		}

		if ok && status.TypedSpec().Value.GetReady() {
			counted.Healthy++
		}

		if connected, _ := c.links.connected(member.Metadata().ID()); connected {
			counted.Connected++
		}
	}

	return modify(ctx, c.state, omni.NewMachineSetStatus(set.Metadata().ID()), nameMachineSetStatus, func(r *omni.MachineSetStatus) error {
		copyLabels(set, r, omni.LabelCluster, omni.LabelControlPlaneRole, omni.LabelWorkerRole)

		spec := r.TypedSpec().Value
		spec.Machines = counted
		spec.Ready = counted.GetHealthy() == counted.GetTotal() && counted.GetTotal() == counted.GetRequested()
		spec.Phase = machineSetPhase(counted)

		return nil
	})
}

func machineSetPhase(counted *specs.Machines) specs.MachineSetPhase {
	switch {
	case counted.GetTotal() < counted.GetRequested():
		return specs.MachineSetPhase_ScalingUp
	case counted.GetTotal() > counted.GetRequested():
		return specs.MachineSetPhase_ScalingDown
	case counted.GetHealthy() < counted.GetTotal():
		return specs.MachineSetPhase_Reconfiguring
	default:
		return specs.MachineSetPhase_Running
	}
}
