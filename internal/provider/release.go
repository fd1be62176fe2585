package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/published"
)

// RefusedError says why something that a person asked for is not done, and what
// to do instead, in one line.
type RefusedError struct{ Reason string }

// Error is the reason.
func (e *RefusedError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// Remains is what may be left of a request that is given up.
type Remains struct {
	RequestID string
	// Gone says that Omni no longer has the request; a state is all that is left.
	Gone bool
	// Machine is the UUID of the machine in Omni, if it has joined.
	Machine string
	// Project and Instance may be in the rack: IDs and names, empty if nothing was
	// made. Disks too.
	Project, Instance Named
	Disks             []Named
	// Addresses are the floating addresses that were made for the machine, Listed
	// those that it has from a list of its class.
	Addresses, Listed []Named
	// Stored says that there is a state of this provider or the published one.
	Stored bool
}

// Named is an object in the rack; its ID is empty as long as it is not known.
type Named struct{ ID, Name string }

// Review looks at what giving up a request would leave behind. A request that
// may not be given up is a *RefusedError.
func (r *Records) Review(ctx context.Context, id string) (*Remains, error) {
	request, err := r.Request(ctx, id)
	if err != nil {
		return nil, err
	}

	out := &Remains{RequestID: id, Gone: request == nil}

	if err := r.readStates(ctx, out); err != nil {
		return nil, err
	}

	switch {
	case request == nil && !out.Stored:
		return nil, refuse("Omni has nothing of a request %q", id)
	case request == nil:
		return out, nil
	case !request.TearingDown:
		return nil, refuse("request %q is not being removed: remove it in Omni first, this only ends a removal that can not end", id)
	case !request.Held && !out.Stored:
		return nil, refuse("request %q is not held by this provider: Omni or somebody else still does", id)
	}

	status, err := safe.StateGetByID[*infra.MachineRequestStatus](ctx, r.State(), id)
	if err == nil {
		out.Machine = status.TypedSpec().Value.GetId()
	} else if !state.IsNotFoundError(err) {
		return nil, fmt.Errorf("reading the status of request %s from Omni: %w", id, err)
	}

	return out, nil
}

func (r *Records) readStates(ctx context.Context, out *Remains) error {
	theirs, err := safe.StateGet[*Published](ctx, r.State(), metadata(publishedName, out.RequestID))
	if err == nil {
		machine := published.Read(theirs.TypedSpec().Value)
		out.Stored, out.Instance, out.Project = true, Named{ID: machine.Instance, Name: out.RequestID}, Named{Name: machine.Project}

		for _, d := range machine.Disks {
			out.Disks = append(out.Disks, Named(d))
		}
	} else if !state.IsNotFoundError(err) {
		return fmt.Errorf("reading the state of request %s from Omni: %w", out.RequestID, err)
	}

	ours, err := safe.StateGet[*Instance](ctx, r.State(), metadata(instanceName, out.RequestID))
	if state.IsNotFoundError(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("reading the state of request %s from Omni: %w", out.RequestID, err)
	}

	out.Stored = true
	out.describe(ours.TypedSpec().Value)

	return nil
}

// describe names what a plan has made, or may have made without an answer.
func (out *Remains) describe(spec *specs.InstanceSpec) {
	plan := spec.GetPlan()
	if plan == nil {
		return
	}

	out.Project = Named{ID: plan.GetProjectId(), Name: plan.GetProjectName()}
	out.Instance = Named{ID: spec.GetInstanceId(), Name: plan.GetInstanceName()}

	known := map[string]string{}
	for _, d := range spec.GetDisks() {
		known[d.GetName()] = d.GetId()
	}

	for _, d := range append([]*specs.DiskPlan{plan.GetBootDisk()}, plan.GetDisks()...) {
		if name := d.GetName(); name != "" {
			out.Disks = append(out.Disks, Named{ID: known[name], Name: name})
			delete(known, name)
		}
	}

	for name, id := range known {
		out.Disks = append(out.Disks, Named{ID: id, Name: name})
	}

	out.describeAddresses(spec)
}

func (out *Remains) describeAddresses(spec *specs.InstanceSpec) {
	made := map[string]string{}
	for _, f := range spec.GetFloatingIps() {
		made[f.GetName()] = f.GetId()
	}

	for _, e := range spec.GetPlan().GetExternalIps() {
		switch {
		case e.GetFloatingIpId() != "":
			out.Listed = append(out.Listed, Named{ID: e.GetFloatingIpId(), Name: e.GetName()})
		case e.GetName() != "":
			out.Addresses = append(out.Addresses, Named{ID: made[e.GetName()], Name: e.GetName()})
		}
	}
}

// letGoWithin bounds how long Omni is waited for to let go of a status.
const letGoWithin = 30 * time.Second

// GiveUp ends the removal of a request without the rack. The finalizer goes
// first and the state last: the SDK never ends a request whose state is gone,
// while a state whose request is gone hurts nobody and can be given up again.
func (r *Records) GiveUp(ctx context.Context, remains *Remains) error {
	id := remains.RequestID

	if !remains.Gone {
		if err := r.endStatus(ctx, remains); err != nil {
			return err
		}

		if err := r.Release(ctx, id); err != nil {
			return err
		}
	}

	for _, name := range []string{instanceName, publishedName} {
		md := metadata(name, id)

		gone, err := r.end(ctx, &md)
		if err != nil {
			return err
		}

		if !gone {
			return fmt.Errorf("somebody else holds the state of request %s in Omni", id)
		}
	}

	return nil
}

// endStatus ends status and config patches as the SDK does. Omni holds the
// status until the node has left its cluster.
func (r *Records) endStatus(ctx context.Context, remains *Remains) error {
	bounded, cancel := context.WithTimeout(ctx, letGoWithin)
	defer cancel()

	for {
		gone, err := r.tidy(bounded, remains.RequestID)
		if err == nil && gone {
			return nil
		}

		if err != nil && !errors.Is(bounded.Err(), context.DeadlineExceeded) {
			return err
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-bounded.Done():
			if remains.Machine == "" {
				return refuse("Omni has not let go of the status of request %s yet: try again later", remains.RequestID)
			}

			return refuse("Omni still waits for the node to leave its cluster; give up on it with `omnictl delete link %s`, then try again", remains.Machine)
		case <-time.After(time.Second):
		}
	}
}
