package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// fakeOmni holds what the janitor reads and changes.
type fakeOmni struct {
	w *world

	requests map[string]*janitor.Request
	statuses map[string]bool
	patches  map[string]bool
	states   map[string]janitor.State
	machines []janitor.Machine
	runs     []image.RunInfo
	// holds are the statuses that somebody else holds.
	holds map[string]bool
}

var _ janitor.Omni = (*fakeOmni)(nil)

func newFakeOmni(w *world) *fakeOmni {
	return &fakeOmni{
		w: w, requests: map[string]*janitor.Request{}, statuses: map[string]bool{}, patches: map[string]bool{},
		states: map[string]janitor.State{}, holds: map[string]bool{},
	}
}

func (o *fakeOmni) Requests(ctx context.Context) (out []janitor.Request, err error) {
	err = o.w.call(ctx, "omni list requests", func() error {
		for _, id := range slices.Sorted(maps.Keys(o.requests)) {
			out = append(out, *o.requests[id])
		}

		return nil
	})

	return out, err
}

func (o *fakeOmni) ids(ctx context.Context, op string, m map[string]bool) (out []string, err error) {
	err = o.w.call(ctx, op, func() error {
		out = slices.Sorted(maps.Keys(m))

		return nil
	})

	return out, err
}

func (o *fakeOmni) Statuses(ctx context.Context) ([]string, error) {
	return o.ids(ctx, "omni list statuses", o.statuses)
}

func (o *fakeOmni) Patches(ctx context.Context) ([]string, error) {
	return o.ids(ctx, "omni list patches", o.patches)
}

func (o *fakeOmni) States(ctx context.Context) (out []janitor.State, err error) {
	err = o.w.call(ctx, "omni list states", func() error {
		out = slices.Collect(maps.Values(o.states))

		return nil
	})

	return out, err
}

func (o *fakeOmni) Machines(ctx context.Context) (out []janitor.Machine, err error) {
	err = o.w.call(ctx, "omni list machines", func() error {
		out = slices.Clone(o.machines)

		return nil
	})

	return out, err
}

func (o *fakeOmni) ImportRuns(ctx context.Context) (out []image.RunInfo, err error) {
	err = o.w.call(ctx, "omni list runs", func() error {
		out = slices.Clone(o.runs)

		return nil
	})

	return out, err
}

func (o *fakeOmni) Request(ctx context.Context, id string) (out *janitor.Request, err error) {
	err = o.w.call(ctx, "omni read request "+id, func() error {
		if r := o.requests[id]; r != nil {
			copied := *r
			out = &copied
		}

		return nil
	})

	return out, err
}

func (o *fakeOmni) HasStatus(ctx context.Context, id string) (has bool, err error) {
	err = o.w.call(ctx, "omni read status "+id, func() error {
		has = o.statuses[id]

		return nil
	})

	return has, err
}

func (o *fakeOmni) HasState(ctx context.Context, id string) (has bool, err error) {
	err = o.w.call(ctx, "omni read state "+id, func() error {
		_, has = o.states[id]

		return nil
	})

	return has, err
}

func (o *fakeOmni) DestroyState(ctx context.Context, id string) error {
	return o.w.call(ctx, "omni destroy state "+id, func() error {
		if o.requests[id] != nil {
			o.w.t.Errorf("the state of request %s is destroyed, which is there", id)
		}

		if o.w.rack.bears(naming.RequestKey(id)) {
			o.w.t.Errorf("the state of %s is destroyed and something of it is in the rack", id)
		}

		delete(o.states, id)

		return nil
	})
}

func (o *fakeOmni) Tidy(ctx context.Context, id string) error {
	return o.w.call(ctx, "omni tidy "+id, func() error {
		if o.requests[id] != nil {
			o.w.t.Errorf("the patches of request %s are destroyed, which is there", id)
		}

		delete(o.patches, id)

		if o.statuses[id] && o.holds[id] {
			return errors.New("Omni still holds the status")
		}

		delete(o.statuses, id)

		return nil
	})
}

func (o *fakeOmni) Release(ctx context.Context, id string) error {
	return o.w.call(ctx, "omni release "+id, func() error {
		r := o.requests[id]
		if r == nil {
			return nil
		}

		_, stateThere := o.states[id]
		if !r.TearingDown || o.statuses[id] || stateThere {
			o.w.t.Errorf("request %s is let go: %+v", id, *r)
		}

		if o.w.rack.bears(naming.RequestKey(id)) {
			o.w.t.Errorf("request %s is let go and something of it is in the rack", id)
		}

		delete(o.requests, id)

		return nil
	})
}

// plan is a stored state of a machine of ours.
func plan(id string) janitor.State {
	return janitor.State{ID: id, Spec: &specs.InstanceSpec{Plan: &specs.Plan{
		Format: 1, RequestId: id, Owner: testOwner, SiloId: testSilo, ProjectId: projectID, ProjectName: "talos",
		InstanceName: naming.Instance(id),
	}}}
}

// machine makes all that there is of a machine in the rack.
func (w *world) machine(id string) *fakeInstance {
	i := w.rack.addInstance(naming.Instance(id), w.mark(id, naming.KindInstance).Describe("Talos machine "+id+" of Omni."))
	w.rack.addDisk(naming.Disk("boot", id), w.mark(id, naming.KindBoot).Describe("Boot disk of machine "+id+"."), i.Id)
	w.rack.addDisk(naming.Disk("data0", id), w.mark(id, naming.KindData).Describe("Data disk of machine "+id+"."), i.Id)

	return i
}

// live makes a machine whose request is there and provisioned.
func (w *world) live(id string) *fakeInstance {
	w.omni.requests[id] = &janitor.Request{ID: id, Project: "talos", Held: true}
	w.omni.statuses[id], w.omni.patches[id] = true, true
	w.omni.states[id] = plan(id)

	i := w.machine(id)
	w.omni.machines = append(w.omni.machines, janitor.Machine{UUID: i.Id, Request: id, Connected: true})

	return i
}

func (w *world) lives(n int) {
	for i := range n {
		w.live(fmt.Sprintf("live-%02d", i))
	}
}
