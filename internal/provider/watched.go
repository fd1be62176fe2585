package provider

import (
	"context"
	"fmt"
	"maps"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	omnires "github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/watcher"
)

// watched tells the watcher of the machines that Omni holds, and has the stored
// states looked over on the way.
type watched struct{ d *Daemon }

var _ watcher.Omni = watched{}

// watch is the loop of the machines' watcher.
func (d *Daemon) watch(ctx context.Context) {
	w := watcher.New(watcher.Config{
		Rack: d.strictRack(), Omni: watched{d}, Ours: d.work.Machines.Ours, JoinTime: d.opts.JoinTime,
		Board: d.opts.Board, Logger: d.opts.Logger, Started: d.opts.Metrics.MachineStart, Mine: d.mine(),
	})

	// Whoever holds the ID next looks anew.
	defer d.opts.Board.Withdraw(SubjectStates)
	defer d.opts.Board.Withdraw(SubjectRemovals)
	defer d.scene.leave()

	d.watcher.Store(w)
	w.Run(ctx)
}

// mine says whether an instance's description bears a mark of ours.
func (d *Daemon) mine() func(description string) bool {
	owner, id := d.work.Owner, d.opts.ProviderID

	return func(description string) bool {
		m, ok := naming.Parse(description)

		return ok && m.Owner == owner && m.Provider == id && m.Kind == naming.KindInstance
	}
}

// MachineCounts are what the watcher found in its last round; all zero before the
// first.
func (d *Daemon) MachineCounts() watcher.Counts {
	if w := d.watcher.Load(); w != nil {
		return w.Counts()
	}

	return watcher.Counts{}
}

// Machines implements watcher.Omni.
func (w watched) Machines(ctx context.Context) ([]watcher.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareDeadline)
	defer cancel()

	st := w.d.state()

	states, published, err := listStates(ctx, st)
	if err != nil {
		return nil, err
	}

	w.d.states.look(w.d.work.Owner, states, published)
	w.d.work.teardowns.tell()

	running, err := runningRequests(ctx, st)
	if err != nil {
		return nil, err
	}

	statuses, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, st)
	if err != nil {
		return nil, fmt.Errorf("listing the statuses of machine requests in Omni: %w", err)
	}

	w.d.scene.rounds.Store(countRequests(running, statuses, states))

	joined := map[resource.ID]bool{}

	for s := range statuses.All() {
		if s.TypedSpec().Value.GetStage() == omnispecs.MachineRequestStatusSpec_PROVISIONED {
			joined[s.Metadata().ID()] = s.TypedSpec().Value.GetId() != ""
		}
	}

	maps.DeleteFunc(joined, func(id resource.ID, _ bool) bool { return !running[id] })

	// A machine of the published provider has a state of ours too, an empty one.
	for _, res := range published {
		delete(joined, res.Metadata().ID())
	}

	return machines(states, joined), nil
}

// machines are those of the states whose requests are done; joined says of each
// whether Omni knows its machine.
func machines(states []*Instance, joined map[resource.ID]bool) []watcher.Machine {
	var out []watcher.Machine

	for _, res := range states {
		spec := res.TypedSpec().Value
		plan := spec.GetPlan()

		known, done := joined[res.Metadata().ID()]
		if !done || plan == nil || otherRequest(plan, res.Metadata().ID()) {
			continue
		}

		m := watcher.Machine{
			RequestID: res.Metadata().ID(), InstanceID: spec.GetInstanceId(), InstanceName: plan.GetInstanceName(),
			ProjectID: plan.GetProjectId(), ProjectName: plan.GetProjectName(),
			Joined: known, Restart: plan.GetOnStopped() == machineclass.StoppedStart,
		}

		if at := spec.GetRunningSince(); at != nil {
			m.RunningSince = at.AsTime()
		}

		out = append(out, m)
	}

	return out
}

// Wanted implements watcher.Omni.
func (w watched) Wanted(ctx context.Context, requestID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	return wanted(ctx, w.d.state(), requestID)
}

// wanted says whether a request is there at this moment and is not torn down.
func wanted(ctx context.Context, st state.State, requestID string) (bool, error) {
	r, err := safe.StateGetByID[*infra.MachineRequest](ctx, st, requestID)
	if state.IsNotFoundError(err) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("reading machine request %s from Omni: %w", requestID, err)
	}

	return r.Metadata().Phase() == resource.PhaseRunning, nil
}

// runningRequests are our requests that are not torn down.
func runningRequests(ctx context.Context, st state.State) (map[resource.ID]bool, error) {
	all, err := safe.StateListAll[*infra.MachineRequest](ctx, st)
	if err != nil {
		return nil, fmt.Errorf("listing the machine requests in Omni: %w", err)
	}

	running := map[resource.ID]bool{}

	for r := range all.All() {
		if of, _ := r.Metadata().Labels().Get(omnires.LabelInfraProviderID); of == providerID() {
			running[r.Metadata().ID()] = r.Metadata().Phase() == resource.PhaseRunning
		}
	}

	return running, nil
}
