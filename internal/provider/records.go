package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// Records is what Omni holds of this provider's requests, as the provider's own
// key may see and change it. It implements janitor.Omni.
type Records struct {
	// State answers the state of the current Omni client.
	State func() state.State
}

var _ janitor.Omni = (*Records)(nil)

// Requests implements janitor.Omni.
func (r *Records) Requests(ctx context.Context) ([]janitor.Request, error) {
	all, err := safe.StateListAll[*infra.MachineRequest](ctx, r.State())
	if err != nil {
		return nil, fmt.Errorf("listing machine requests in Omni: %w", err)
	}

	var out []janitor.Request
	for request := range all.All() {
		out = append(out, describeRequest(request))
	}

	return out, nil
}

func describeRequest(r *infra.MachineRequest) janitor.Request {
	out := janitor.Request{
		ID:          r.Metadata().ID(),
		TearingDown: r.Metadata().Phase() == resource.PhaseTearingDown,
		Held:        r.Metadata().Finalizers().Has(providerID() + sdkController),
	}
	out.Set, _ = r.Metadata().Labels().Get(omni.LabelMachineRequestSet)

	if class, err := machineclass.Parse(r.TypedSpec().Value.GetProviderData()); err == nil {
		out.Project = class.Project
	}

	return out
}

// Statuses implements janitor.Omni.
func (r *Records) Statuses(ctx context.Context) ([]string, error) {
	all, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, r.State())
	if err != nil {
		return nil, fmt.Errorf("listing statuses of machine requests in Omni: %w", err)
	}

	var ids []string
	for s := range all.All() {
		ids = append(ids, s.Metadata().ID())
	}

	return ids, nil
}

// Patches implements janitor.Omni.
func (r *Records) Patches(ctx context.Context) ([]string, error) {
	all, err := safe.StateListAll[*infra.ConfigPatchRequest](ctx, r.State())
	if err != nil {
		return nil, fmt.Errorf("listing config patches of machine requests in Omni: %w", err)
	}

	var ids []string

	for p := range all.All() {
		if id, ok := p.Metadata().Labels().Get(omni.LabelMachineRequest); ok {
			ids = append(ids, id)
		}
	}

	return ids, nil
}

// States implements janitor.Omni.
func (r *Records) States(ctx context.Context) ([]janitor.State, error) {
	ours, theirs, err := listStates(ctx, r.State())
	if err != nil {
		return nil, err
	}

	var out []janitor.State

	published := map[resource.ID]bool{}
	for _, s := range theirs {
		published[s.Metadata().ID()] = true
		out = append(out, janitor.State{ID: s.Metadata().ID(), Held: wordsOf(OddPublished)})
	}

	for _, s := range ours {
		// The SDK makes an empty one beside that of the published provider.
		if !published[s.Metadata().ID()] {
			out = append(out, janitor.State{ID: s.Metadata().ID(), Spec: s.TypedSpec().Value, Held: heldState(s)})
		}
	}

	return out, nil
}

// heldState says why a state of our type is not one to act upon.
func heldState(res *Instance) string {
	plan := res.TypedSpec().Value.GetPlan()

	switch {
	case plan != nil && otherRequest(plan, res.Metadata().ID()):
		return wordsOf(OddRequest)
	case plan != nil && checkFormat(plan) != nil:
		return wordsOf(OddFormat)
	case hasUnknown(res.TypedSpec().Value.ProtoReflect()):
		return wordsOf(OddFields)
	default:
		return ""
	}
}

func wordsOf(odd Oddity) string {
	for _, o := range oddities {
		if o.is == odd {
			return o.full
		}
	}

	return string(odd)
}

// Machines implements janitor.Omni. A provider's key sees the machines of the
// whole account.
func (r *Records) Machines(ctx context.Context) ([]janitor.Machine, error) {
	all, err := safe.StateListAll[*omni.Machine](ctx, r.State())
	if err != nil {
		return nil, fmt.Errorf("listing machines in Omni: %w", err)
	}

	var out []janitor.Machine

	for m := range all.All() {
		machine := janitor.Machine{UUID: m.Metadata().ID(), Connected: m.TypedSpec().Value.GetConnected()}

		if id, _ := m.Metadata().Labels().Get(omni.LabelInfraProviderID); id == providerID() {
			machine.Request, _ = m.Metadata().Labels().Get(omni.LabelMachineRequest)
		}

		out = append(out, machine)
	}

	return out, nil
}

// ImportRuns implements janitor.Omni.
func (r *Records) ImportRuns(ctx context.Context) ([]image.RunInfo, error) {
	return (&Runs{State: r.State}).Others(ctx)
}

// Request implements janitor.Omni.
func (r *Records) Request(ctx context.Context, id string) (*janitor.Request, error) {
	found, err := safe.StateGetByID[*infra.MachineRequest](ctx, r.State(), id)
	if state.IsNotFoundError(err) {
		return nil, nil //nolint:nilnil // absence is an answer
	}

	if err != nil {
		return nil, fmt.Errorf("reading request %s from Omni: %w", id, err)
	}

	out := describeRequest(found)

	return &out, nil
}

// HasStatus implements janitor.Omni.
func (r *Records) HasStatus(ctx context.Context, id string) (bool, error) {
	return r.has(ctx, infra.NewMachineRequestStatus(id).Metadata(), "status")
}

// HasState implements janitor.Omni. One of the published provider counts too.
func (r *Records) HasState(ctx context.Context, id string) (bool, error) {
	for _, name := range []string{publishedName, instanceName} {
		md := metadata(name, id)

		if has, err := r.has(ctx, &md, "state"); has || err != nil {
			return has, err
		}
	}

	return false, nil
}

func (r *Records) has(ctx context.Context, ptr resource.Pointer, what string) (bool, error) {
	_, err := r.State().Get(ctx, ptr)
	if state.IsNotFoundError(err) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("reading the %s of request %s from Omni: %w", what, ptr.ID(), err)
	}

	return true, nil
}

// DestroyState implements janitor.Omni.
func (r *Records) DestroyState(ctx context.Context, id string) error {
	md := metadata(instanceName, id)

	gone, err := r.end(ctx, &md)
	if err == nil && !gone {
		err = fmt.Errorf("somebody else holds the state of request %s in Omni", id)
	}

	return err
}

// Tidy implements janitor.Omni.
func (r *Records) Tidy(ctx context.Context, id string) error {
	gone, err := r.tidy(ctx, id)
	if err == nil && !gone {
		err = fmt.Errorf("in Omni there are still the status or config patches of request %s, as it does until the node has left its cluster", id)
	}

	return err
}

// tidy answers whether nothing is left.
func (r *Records) tidy(ctx context.Context, id string) (bool, error) {
	patches, err := safe.StateListAll[*infra.ConfigPatchRequest](ctx, r.State(),
		state.WithLabelQuery(resource.LabelEqual(omni.LabelMachineRequest, id)))
	if err != nil {
		return false, fmt.Errorf("listing config patches of request %s in Omni: %w", id, err)
	}

	all := true

	for _, ptr := range append(slices.Collect(patches.Pointers()), resource.Pointer(infra.NewMachineRequestStatus(id).Metadata())) {
		gone, err := r.end(ctx, ptr)
		if err != nil {
			return false, err
		}

		all = all && gone
	}

	return all, nil
}

// end tears down what the SDK's controller owns, and destroys it unless Omni
// still holds it.
func (r *Records) end(ctx context.Context, ptr resource.Pointer) (gone bool, err error) {
	owner := providerID() + sdkController

	ready, err := r.State().Teardown(ctx, ptr, state.WithTeardownOwner(owner))
	if err == nil && ready {
		err = r.State().Destroy(ctx, ptr, state.WithDestroyOwner(owner))
	}

	if state.IsNotFoundError(err) {
		return true, nil
	}

	if err != nil {
		return false, fmt.Errorf("destroying %s %s in Omni: %w", ptr.Type(), ptr.ID(), err)
	}

	return ready, nil
}

// Release implements janitor.Omni. Taken by mistake from a running request the
// finalizer would come back; the phase is looked at all the same.
func (r *Records) Release(ctx context.Context, id string) error {
	ptr := infra.NewMachineRequest(id).Metadata()

	held, err := r.State().Get(ctx, ptr)
	if state.IsNotFoundError(err) {
		return nil
	}

	if err == nil && held.Metadata().Phase() != resource.PhaseTearingDown {
		return fmt.Errorf("request %s is not being removed: its finalizer stays", id)
	}

	if err == nil {
		err = r.State().RemoveFinalizer(ctx, ptr, providerID()+sdkController)
	}

	if err != nil && !state.IsNotFoundError(err) {
		return fmt.Errorf("removing the finalizer from request %s in Omni: %w", id, err)
	}

	return nil
}
