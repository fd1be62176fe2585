package omni

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

// linkGrace is how long a link that its user deletes is left to that user to
// destroy. It is not scaled, for the user is not.
const linkGrace = 2 * time.Second

// reconcileLinks registers each link with its provider, and makes a machine of
// it once its request has taken it. A guest that booted with the join config of
// a request that is gone stays a link and a registration.
func (c *controllers) reconcileLinks(ctx context.Context) error {
	all, err := safe.StateListAll[*siderolink.Link](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for l := range all.All() {
		if running(l) {
			errs = errors.Join(errs, c.keepLink(ctx, l))
		} else {
			errs = errors.Join(errs, c.clearLink(ctx, l))
		}
	}

	return errs
}

func (c *controllers) keepLink(ctx context.Context, l *siderolink.Link) error {
	connected, changes := c.links.connected(l.Metadata().ID())
	if changes > 0 {
		c.revisit(changes)
	}

	if err := amend(ctx, c.state, l.Metadata(), func(r *siderolink.Link) error {
		r.TypedSpec().Value.Connected = connected

		return nil
	}); err != nil {
		return err
	}

	if label(l, omni.LabelInfraProviderID) != "" {
		if err := hold(ctx, c.state, l, nameRegistration); err != nil {
			return err
		}

		if err := modify(ctx, c.state, infra.NewMachineRegistration(l.Metadata().ID()), nameRegistration, func(r *infra.MachineRegistration) error {
			for key, value := range l.Metadata().Labels().Raw() {
				r.Metadata().Labels().Set(key, value)
			}

			return nil
		}); err != nil {
			return err
		}
	}

	if err := hold(ctx, c.state, l, nameMachine); err != nil {
		return err
	}

	return c.makeMachine(ctx, l, connected)
}

// makeMachine makes the machine if its provider's request has its UUID.
func (c *controllers) makeMachine(ctx context.Context, l *siderolink.Link, connected bool) error {
	set := ""

	if label(l, omni.LabelInfraProviderID) != "" {
		request, ok, err := get[*infra.MachineRequest](ctx, c.state, infra.NewMachineRequest(label(l, omni.LabelMachineRequest)).Metadata())
		if err != nil || !ok {
			return err
		}

		status, ok, err := get[*infra.MachineRequestStatus](ctx, c.state, infra.NewMachineRequestStatus(request.Metadata().ID()).Metadata())
		if err != nil || !ok || status.TypedSpec().Value.GetId() == "" {
			return err
		}

		set = label(request, omni.LabelMachineRequestSet)
	}

	prefix, err := netip.ParsePrefix(l.TypedSpec().Value.GetNodeSubnet())
	if err != nil {
		return err
	}

	return modify(ctx, c.state, omni.NewMachine(l.Metadata().ID()), nameMachine, func(r *omni.Machine) error {
		copyLabels(l, r, omni.LabelMachineRequest, omni.LabelInfraProviderID)

		if set != "" {
			r.Metadata().Labels().Set(omni.LabelMachineRequestSet, set)
		}

		r.Metadata().Labels().Set(omni.MachineAddressLabel, prefix.Addr().String())

		spec := r.TypedSpec().Value
		spec.ManagementAddress = prefix.Addr().String()
		spec.Connected = connected

		return nil
	})
}

// clearLink takes the machine and the registration away, and then the link
// itself, unless its user is there to do that.
func (c *controllers) clearLink(ctx context.Context, l *siderolink.Link) error {
	id := l.Metadata().ID()

	gone, err := c.removeByPointer(ctx, omni.NewMachine(id).Metadata())
	if err != nil || !gone {
		return err
	}

	if gone, err = c.removeByPointer(ctx, infra.NewMachineRegistration(id).Metadata()); err != nil || !gone {
		return err
	}

	for _, finalizer := range []string{nameMachine, nameRegistration} {
		if err := release(ctx, c.state, l, finalizer); err != nil {
			return err
		}
	}

	if grace := linkGrace - time.Since(l.Metadata().Updated()); !c.ownLinks[id] && grace > 0 {
		c.revisit(grace)

		return nil
	}

	if _, err := c.removeByPointer(ctx, siderolink.NewNodeUniqueToken(id).Metadata()); err != nil {
		return err
	}

	delete(c.ownLinks, id)

	_, err = c.removeByPointer(ctx, l.Metadata())

	return err
}

// reconcileMachines reports what machines are, and lets those go whose link is
// torn down.
func (c *controllers) reconcileMachines(ctx context.Context) error {
	machines, err := safe.StateListAll[*omni.Machine](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for machine := range machines.All() {
		if running(machine) {
			errs = errors.Join(errs, hold(ctx, c.state, machine, nameMachineCleanup), c.describeMachine(ctx, machine))
		} else {
			errs = errors.Join(errs, c.clearMachine(ctx, machine))
		}
	}

	return errs
}

func (c *controllers) describeMachine(ctx context.Context, machine *omni.Machine) error {
	id := machine.Metadata().ID()

	current := c.links.session(id)
	member, inCluster, err := get[*omni.ClusterMachine](ctx, c.state, omni.NewClusterMachine(id).Metadata())
	if err != nil {
		return err
	}

	return modify(ctx, c.state, omni.NewMachineStatus(id), nameMachineStatus, func(r *omni.MachineStatus) error {
		copyLabels(machine, r, omni.LabelMachineRequest, omni.LabelMachineRequestSet, omni.LabelInfraProviderID, omni.MachineAddressLabel)

		spec := r.TypedSpec().Value
		spec.ManagementAddress = machine.TypedSpec().Value.GetManagementAddress()
		spec.Connected = machine.TypedSpec().Value.GetConnected()
		spec.Cluster, spec.Role = "", specs.MachineStatusSpec_NONE
		r.Metadata().Labels().Delete(omni.LabelCluster)

		if inCluster {
			spec.Cluster, spec.Role = label(member, omni.LabelCluster), roleOf(member)
			copyLabels(member, r, omni.LabelCluster, omni.LabelMachineSet, omni.LabelControlPlaneRole, omni.LabelWorkerRole)
		}

		if current != nil {
			describeGuest(spec, current)
		}

		return nil
	})
}

func roleOf(res resource.Resource) specs.MachineStatusSpec_Role {
	if _, ok := res.Metadata().Labels().Get(omni.LabelControlPlaneRole); ok {
		return specs.MachineStatusSpec_CONTROL_PLANE
	}

	return specs.MachineStatusSpec_WORKER
}

// describeGuest copies what the guest said of itself.
func describeGuest(spec *specs.MachineStatusSpec, current *session) {
	stage, hostname := current.now()

	spec.TalosVersion = current.hello.TalosVersion
	spec.Maintenance = stage == link.StageMaintenance
	spec.Hardware = &specs.MachineStatusSpec_HardwareStatus{Arch: current.hello.Arch}
	spec.Network = &specs.MachineStatusSpec_NetworkStatus{Hostname: hostname, Addresses: current.hello.Addresses}
	spec.Schematic = &specs.MachineStatusSpec_Schematic{FullId: current.hello.Schematic, InitialSchematic: current.hello.Schematic}
	spec.PlatformMetadata = nil

	if current.hello.Platform != "" {
		spec.PlatformMetadata = &specs.MachineStatusSpec_PlatformMetadata{Platform: current.hello.Platform}
	}

	if spec.GetInitialTalosVersion() == "" {
		spec.InitialTalosVersion = current.hello.TalosVersion
	}
}

// clearMachine takes the machine out of its set; its node is not reset any more,
// since its link is being deleted. Then it gets one last reset, without reboot
// and without regard to what comes of it, so it may be found halted.
func (c *controllers) clearMachine(ctx context.Context, machine *omni.Machine) error {
	id := machine.Metadata().ID()

	if gone, err := c.removeByPointer(ctx, machineSetNodePointer(id)); err != nil || !gone {
		return err
	}

	if _, present, err := get[*omni.ClusterMachine](ctx, c.state, omni.NewClusterMachine(id).Metadata()); err != nil || present {
		return err
	}

	if !c.sayFarewell(ctx, id) {
		return nil
	}

	if _, err := c.removeByPointer(ctx, omni.NewMachineStatus(id).Metadata()); err != nil {
		return err
	}

	delete(c.farewell, id)
	delete(c.configs, id)

	return release(ctx, c.state, machine, nameMachineCleanup)
}

// sayFarewell sends the last reset and reports whether it is over with.
func (c *controllers) sayFarewell(ctx context.Context, id resource.ID) bool {
	current := c.links.session(id)
	if current == nil {
		return true
	}

	limit := c.server.config.scaled(resetTimeout)

	since, begun := c.farewell[id]
	if !begun {
		since = time.Now()
		c.farewell[id] = since
	}

	done, _ := current.start(ctx, &c.commands, "farewell", link.Command{Verb: link.VerbReset})
	if done || time.Since(since) >= limit {
		return true
	}

	c.revisit(limit - time.Since(since))

	return false
}
