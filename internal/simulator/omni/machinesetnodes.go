package omni

import (
	"context"
	"errors"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
)

func machineSetNodePointer(id resource.ID) resource.Pointer {
	return resource.NewMetadata(resources.DefaultNamespace, omni.MachineSetNodeType, id, resource.VersionUndefined)
}

// reconcileMachineSetNodes takes connected machines of a set's requests into
// the set, up to its size, and gives back what is too many.
func (c *controllers) reconcileMachineSetNodes(ctx context.Context) error {
	sets, err := safe.StateListAll[*omni.MachineSet](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for set := range sets.All() {
		errs = errors.Join(errs, c.fillSet(ctx, set))
	}

	return errs
}

func (c *controllers) nodesOf(ctx context.Context, set resource.ID) ([]*omni.MachineSetNode, error) {
	nodes, err := safe.StateListAll[*omni.MachineSetNode](ctx, c.state, state.WithLabelQuery(resource.LabelEqual(omni.LabelMachineSet, set)))
	if err != nil {
		return nil, err
	}

	return slices.Collect(nodes.All()), nil
}

func (c *controllers) fillSet(ctx context.Context, set *omni.MachineSet) error {
	nodes, err := c.nodesOf(ctx, set.Metadata().ID())
	if err != nil {
		return err
	}

	wanted := 0

	if allocation := omni.GetMachineAllocation(set); running(set) {
		if allocation == nil {
			return nil
		}

		wanted = int(machineCount(allocation))
	}

	var staying []*omni.MachineSetNode

	for _, node := range nodes {
		if running(node) {
			staying = append(staying, node)
		} else if _, err := remove(ctx, c.state, node); err != nil {
			return err
		}
	}

	if surplus := len(staying) - wanted; surplus > 0 {
		return c.giveBack(ctx, staying, surplus)
	}

	return c.take(ctx, set, nodes, wanted-len(staying))
}

// giveBack removes nodes that are not connected first, then the oldest.
func (c *controllers) giveBack(ctx context.Context, nodes []*omni.MachineSetNode, count int) error {
	slices.SortStableFunc(nodes, func(a, b *omni.MachineSetNode) int {
		aLive, bLive := c.links.session(a.Metadata().ID()) != nil, c.links.session(b.Metadata().ID()) != nil
		if aLive != bLive {
			if aLive {
				return 1
			}

			return -1
		}

		return a.Metadata().Created().Compare(b.Metadata().Created())
	})

	for _, node := range nodes[:count] {
		if _, err := remove(ctx, c.state, node); err != nil {
			return err
		}
	}

	return nil
}

func (c *controllers) take(ctx context.Context, set *omni.MachineSet, nodes []*omni.MachineSetNode, count int) error {
	if count <= 0 {
		return nil
	}

	machines, err := safe.StateListAll[*omni.Machine](ctx, c.state,
		state.WithLabelQuery(resource.LabelEqual(omni.LabelMachineRequestSet, set.Metadata().ID())))
	if err != nil {
		return err
	}

	for machine := range machines.All() {
		if count == 0 {
			return nil
		}

		id := machine.Metadata().ID()

		if !running(machine) || c.links.session(id) == nil ||
			slices.ContainsFunc(nodes, func(n *omni.MachineSetNode) bool { return n.Metadata().ID() == id }) {
			continue
		}

		leaving, err := c.leaving(ctx, id, label(machine, omni.LabelMachineRequest))
		if err != nil {
			return err
		}

		if leaving {
			continue
		}

		if err := c.state.Create(ctx, omni.NewMachineSetNode(id, set), state.WithCreateOwner(nameMachineSetNode)); err != nil {
			return err
		}

		count--
	}

	return nil
}

// leaving says whether a machine is on its way out: still being reset as a
// member of a set, or given back by its request.
func (c *controllers) leaving(ctx context.Context, machine, request resource.ID) (bool, error) {
	if _, member, err := get[*omni.ClusterMachine](ctx, c.state, omni.NewClusterMachine(machine).Metadata()); err != nil || member {
		return member, err
	}

	r, ok, err := c.request(ctx, request)

	return ok && !running(r), err
}
