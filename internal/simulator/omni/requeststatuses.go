package omni

import (
	"context"
	"errors"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
)

// reconcileRequestStatuses holds each request's status until its machine has
// left, which keeps the provider from taking the machine away before that.
func (c *controllers) reconcileRequestStatuses(ctx context.Context) error {
	statuses, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for status := range statuses.All() {
		if running(status) {
			errs = errors.Join(errs, hold(ctx, c.state, status, nameRequestStatusCleanup), c.labelLink(ctx, status))
		} else {
			errs = errors.Join(errs, c.letMachineGo(ctx, status))
		}
	}

	return errs
}

// labelLink names the request on the link of the machine that the provider
// reported for it, for guests whose tokens did not.
func (c *controllers) labelLink(ctx context.Context, status *infra.MachineRequestStatus) error {
	id := status.TypedSpec().Value.GetId()
	if id == "" {
		return nil
	}

	current, ok, err := get[*siderolink.Link](ctx, c.state, siderolink.NewLink(id, nil).Metadata())
	if err != nil || !ok || !running(current) {
		return err
	}

	return amend(ctx, c.state, current.Metadata(), func(l *siderolink.Link) error {
		l.Metadata().Labels().Set(omni.LabelMachineRequest, status.Metadata().ID())
		copyLabels(status, l, omni.LabelMachineRequestSet)

		return nil
	})
}

// letMachineGo takes the node out of its set, waits until it is no cluster
// machine any more, and then tears its link down. A request whose machine never
// joined has nothing to wait for.
func (c *controllers) letMachineGo(ctx context.Context, status *infra.MachineRequestStatus) error {
	if id := status.TypedSpec().Value.GetId(); id != "" {
		gone, err := c.removeByPointer(ctx, machineSetNodePointer(id))
		if err != nil || !gone {
			return err
		}

		if _, present, err := get[*omni.ClusterMachine](ctx, c.state, omni.NewClusterMachine(id).Metadata()); err != nil || present {
			return err
		}

		if err := c.teardownLink(ctx, id); err != nil {
			return err
		}
	}

	return release(ctx, c.state, status, nameRequestStatusCleanup)
}

// teardownLink tears down a link that nobody else will destroy.
func (c *controllers) teardownLink(ctx context.Context, id resource.ID) error {
	_, err := c.state.Teardown(ctx, siderolink.NewLink(id, nil).Metadata())
	if state.IsNotFoundError(err) {
		return nil
	}

	c.ownLinks[id] = true

	return err
}

// reconcileClusterRequestStatuses writes what the cluster's page shows of a
// request. It follows a request until only this controller holds it.
func (c *controllers) reconcileClusterRequestStatuses(ctx context.Context) error {
	requests, err := safe.StateListAll[*infra.MachineRequest](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for request := range requests.All() {
		errs = errors.Join(errs, c.showRequest(ctx, request))
	}

	return errs
}

func (c *controllers) showRequest(ctx context.Context, request *infra.MachineRequest) error {
	id := request.Metadata().ID()

	set, inCluster, err := get[*omni.MachineSet](ctx, c.state, omni.NewMachineSet(label(request, omni.LabelMachineRequestSet)).Metadata())
	if err != nil {
		return err
	}

	if !inCluster || lastHeld(request) {
		if _, err := c.removeByPointer(ctx, omni.NewClusterMachineRequestStatus(id).Metadata()); err != nil {
			return err
		}

		return release(ctx, c.state, request, nameClusterRequestStatus)
	}

	if err := hold(ctx, c.state, request, nameClusterRequestStatus); err != nil {
		return err
	}

	status, reported, err := get[*infra.MachineRequestStatus](ctx, c.state, infra.NewMachineRequestStatus(id).Metadata())
	if err != nil {
		return err
	}

	_, inUse, err := get[*omni.ClusterMachineStatus](ctx, c.state, omni.NewClusterMachineStatus(machineOf(status)).Metadata())
	if err != nil {
		return err
	}

	return modify(ctx, c.state, omni.NewClusterMachineRequestStatus(id), nameClusterRequestStatus, func(r *omni.ClusterMachineRequestStatus) error {
		copyLabels(set, r, omni.LabelCluster, omni.LabelControlPlaneRole, omni.LabelWorkerRole)
		r.Metadata().Labels().Set(omni.LabelMachineSet, set.Metadata().ID())

		if inUse {
			r.Metadata().Labels().Set(omni.LabelMachineRequestInUse, "")
		} else {
			r.Metadata().Labels().Delete(omni.LabelMachineRequestInUse)
		}

		spec := r.TypedSpec().Value
		spec.ProviderId = label(request, omni.LabelInfraProviderID)

		switch {
		case !running(request):
			spec.Stage = specs.ClusterMachineRequestStatusSpec_DEPROVISIONING
			spec.Status = "Waiting for the infra provider to finish teardown"
		case !reported:
			spec.Stage = specs.ClusterMachineRequestStatusSpec_PENDING
			spec.Status = "Waiting for the infra provider to start provision"
		default:
			showProgress(spec, status.TypedSpec().Value)
		}

		return nil
	})
}

// lastHeld says whether nobody but this controller holds a request that is
// going.
func lastHeld(request *infra.MachineRequest) bool {
	finalizers := *request.Metadata().Finalizers()

	return !running(request) && (finalizers.Empty() || len(finalizers) == 1 && finalizers.Has(nameClusterRequestStatus))
}

// machineOf is the machine that a status names, empty without one.
func machineOf(status *infra.MachineRequestStatus) resource.ID {
	if status == nil {
		return ""
	}

	return status.TypedSpec().Value.GetId()
}

// showProgress words a request's progress as the page does: the error shows
// only when the provider failed.
func showProgress(spec *specs.ClusterMachineRequestStatusSpec, from *specs.MachineRequestStatusSpec) {
	spec.MachineUuid, spec.Status, spec.Error = from.GetId(), from.GetStatus(), from.GetError()

	switch from.GetStage() {
	case specs.MachineRequestStatusSpec_UNKNOWN:
		spec.Stage = specs.ClusterMachineRequestStatusSpec_PENDING
	case specs.MachineRequestStatusSpec_PROVISIONING:
		spec.Stage = specs.ClusterMachineRequestStatusSpec_PROVISIONING
	case specs.MachineRequestStatusSpec_PROVISIONED:
		spec.Stage = specs.ClusterMachineRequestStatusSpec_PROVISIONED
		spec.Status = "Waiting for the machine to join Omni"
	case specs.MachineRequestStatusSpec_FAILED:
		spec.Stage = specs.ClusterMachineRequestStatusSpec_FAILED
		spec.Status = "Provision Failed: " + from.GetError()
	}
}
