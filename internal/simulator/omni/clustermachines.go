package omni

import (
	"context"
	"errors"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

func (c *controllers) request(ctx context.Context, id resource.ID) (*infra.MachineRequest, bool, error) {
	return get[*infra.MachineRequest](ctx, c.state, infra.NewMachineRequest(id).Metadata())
}

// reconcileClusterMachines makes a cluster machine of each node of a set,
// configures it, and resets it when the node is given back:
//
//	node ─> ClusterMachine ─> config applied ─> running
//	node torn down ─> ClusterMachine torn down ─> reset, reboot ─> maintenance ─> gone
//
// A machine that does not answer holds its cluster machine until its link is
// deleted.
func (c *controllers) reconcileClusterMachines(ctx context.Context) error {
	if err := c.followNodes(ctx); err != nil {
		return err
	}

	machines, err := safe.StateListAll[*omni.ClusterMachine](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for machine := range machines.All() {
		if running(machine) {
			errs = errors.Join(errs, c.configure(ctx, machine), c.showMember(ctx, machine))
		} else {
			errs = errors.Join(errs, c.expel(ctx, machine))
		}
	}

	return errs
}

// followNodes makes and tears down cluster machines as their nodes say.
func (c *controllers) followNodes(ctx context.Context) error {
	nodes, err := safe.StateListAll[*omni.MachineSetNode](ctx, c.state)
	if err != nil {
		return err
	}

	present := map[resource.ID]bool{}

	for node := range nodes.All() {
		id := node.Metadata().ID()

		if !running(node) {
			if err := release(ctx, c.state, node, nameMachineSetStatus); err != nil {
				return err
			}

			continue
		}

		present[id] = true

		if err := hold(ctx, c.state, node, nameMachineSetStatus); err != nil {
			return err
		}

		if err := modify(ctx, c.state, omni.NewClusterMachine(id), nameMachineSetStatus, func(r *omni.ClusterMachine) error {
			copyLabels(node, r, omni.LabelCluster, omni.LabelMachineSet, omni.LabelControlPlaneRole, omni.LabelWorkerRole)
			r.TypedSpec().Value.KubernetesVersion = defaultKubernetesVersion

			return nil
		}); err != nil {
			return err
		}
	}

	machines, err := safe.StateListAll[*omni.ClusterMachine](ctx, c.state)
	if err != nil {
		return err
	}

	for machine := range machines.All() {
		if present[machine.Metadata().ID()] && running(machine) {
			continue
		}

		if _, err := remove(ctx, c.state, machine); err != nil {
			return err
		}
	}

	return nil
}

// expel resets a machine that leaves its cluster and releases it once it is in
// maintenance again, or once its link is being deleted.
func (c *controllers) expel(ctx context.Context, machine *omni.ClusterMachine) error {
	id := machine.Metadata().ID()

	l, ok, err := get[*siderolink.Link](ctx, c.state, siderolink.NewLink(id, nil).Metadata())
	if err != nil {
		return err
	}

	if ok && running(l) {
		clean, err := c.reset(ctx, id)
		if err != nil {
			return err
		}

		if !clean {
			return c.showLeaving(ctx, machine)
		}
	}

	for _, res := range []resource.Resource{omni.NewClusterMachineConfigStatus(id), omni.NewClusterMachineStatus(id)} {
		if _, err := c.removeByPointer(ctx, res.Metadata()); err != nil {
			return err
		}
	}

	delete(c.configs, id)

	return release(ctx, c.state, machine, nameMachineConfigStatus)
}

// reset wipes a machine and says whether it is clean: its link began in
// maintenance, which it does after a reset or if it was never configured, and no
// config was given to it since. What came of a reset is not asked, for the link
// may break before the answer is seen.
func (c *controllers) reset(ctx context.Context, id resource.ID) (clean bool, err error) {
	current := c.links.session(id)
	if current == nil {
		return false, nil
	}

	stage, _ := current.now()

	switch {
	case stage == link.StageResetting:
		return false, nil
	case stage == link.StageMaintenance && current.hello.Stage == stage && !current.given(commandApply):
		return true, nil
	}

	done, err := current.start(ctx, &c.commands, commandReset, link.Command{Verb: link.VerbReset, Reboot: true})
	if done && err != nil {
		current.forget(commandReset)

		return false, err
	}

	return false, nil
}

func (c *controllers) showLeaving(ctx context.Context, machine *omni.ClusterMachine) error {
	return amend(ctx, c.state, omni.NewClusterMachineStatus(machine.Metadata().ID()).Metadata(), func(r *omni.ClusterMachineStatus) error {
		r.TypedSpec().Value.Stage = specs.ClusterMachineStatusSpec_DESTROYING
		r.TypedSpec().Value.Ready = false

		return nil
	})
}

// showMember writes a member's status.
func (c *controllers) showMember(ctx context.Context, machine *omni.ClusterMachine) error {
	id := machine.Metadata().ID()

	applied, configured, err := get[*omni.ClusterMachineConfigStatus](ctx, c.state, omni.NewClusterMachineConfigStatus(id).Metadata())
	if err != nil {
		return err
	}

	machineStatus, known, err := get[*omni.MachineStatus](ctx, c.state, omni.NewMachineStatus(id).Metadata())
	if err != nil {
		return err
	}

	return modify(ctx, c.state, omni.NewClusterMachineStatus(id), nameClusterMachineStatus, func(r *omni.ClusterMachineStatus) error {
		copyLabels(machine, r, omni.LabelCluster, omni.LabelMachineSet, omni.LabelControlPlaneRole, omni.LabelWorkerRole)

		spec := r.TypedSpec().Value
		spec.Stage, spec.Ready = c.stageOf(id)
		spec.LastConfigError, spec.ConfigUpToDate = "", false

		if configured {
			spec.LastConfigError = applied.TypedSpec().Value.GetLastConfigError()
			spec.ConfigUpToDate = applied.TypedSpec().Value.GetClusterMachineConfigSha256() == c.configs[id].sum
		}

		spec.Ready = spec.GetReady() && spec.GetConfigUpToDate() && spec.GetLastConfigError() == ""

		if known {
			spec.ManagementAddress = machineStatus.TypedSpec().Value.GetManagementAddress()
			r.Metadata().Labels().Set(omni.ClusterMachineStatusLabelNodeName, machineStatus.TypedSpec().Value.GetNetwork().GetHostname())
			spec.ProvisionStatus = &specs.ClusterMachineStatusSpec_ProvisionStatus{
				ProviderId: label(machineStatus, omni.LabelInfraProviderID), RequestId: label(machineStatus, omni.LabelMachineRequest),
			}
		}

		return nil
	})
}

// stageOf words the guest's stage as Omni does.
func (c *controllers) stageOf(id resource.ID) (specs.ClusterMachineStatusSpec_Stage, bool) {
	current := c.links.session(id)
	if current == nil {
		return specs.ClusterMachineStatusSpec_BOOTING, false
	}

	switch stage, _ := current.now(); stage {
	case link.StageRunning:
		return specs.ClusterMachineStatusSpec_RUNNING, true
	case link.StageResetting:
		return specs.ClusterMachineStatusSpec_DESTROYING, false
	case link.StageMaintenance:
		return specs.ClusterMachineStatusSpec_CONFIGURING, false
	default:
		return specs.ClusterMachineStatusSpec_UNKNOWN, false
	}
}
