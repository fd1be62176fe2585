package instance

import (
	"context"
	"fmt"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// stopAgain is when a stop that had no effect is sent again: the rack accepts
// some and loses them.
const stopAgain = 30 * time.Second

// Remove takes down the instance of the spec, its disks and the floating addresses
// that were made for it. It returns nil only when nothing of them is left and
// nothing can still come.
//
// It changes nothing in the spec: Omni does not store what a teardown changes.
func (m *Machines) Remove(ctx context.Context, spec *specs.InstanceSpec) error {
	plan := spec.GetPlan()
	m.creates.Leave(plan.GetRequestId())
	m.starts.Leave(plan.GetRequestId())

	// The lists that follow prove what is not there after this moment.
	looked := m.now()

	t := targetOf(spec)
	t.sure = m.unsure(spec).IsZero()

	if err := m.removeAll(ctx, t); err != nil {
		return err
	}

	if err := m.settled(spec, looked); err != nil {
		return err
	}

	m.leave(plan.GetRequestId(), spec.GetInstanceId())

	return nil
}

// target is what a removal goes by.
type target struct {
	// plan says in which project, and in which silo that is.
	plan *specs.Plan
	// key is that of the request's marks.
	key string
	// instanceID is the instance that is known to have been made, if one is.
	instanceID string
	// sure says that no other can have been made.
	sure bool
	// disks are those that were recorded, if no other can bear the mark.
	disks []*specs.DiskRef
	// addresses says that floating addresses may have been made.
	addresses bool
}

func targetOf(spec *specs.InstanceSpec) target {
	plan := spec.GetPlan()

	var disks []*specs.DiskRef
	if Known(spec) && spec.GetIncarnation() == 0 {
		disks = spec.GetDisks()
	}

	return target{
		plan: plan, disks: disks, key: naming.RequestKey(plan.GetRequestId()), instanceID: spec.GetInstanceId(),
		// Without a name there is no plan, only marks to go by.
		addresses: plan.GetInstanceName() == "" || makesAddresses(plan) || len(spec.GetFloatingIps()) > 0,
	}
}

// removeAll takes the next step with the instances, then with the disks and then
// with the addresses, and returns nil when there is none left.
func (m *Machines) removeAll(ctx context.Context, t target) error {
	// Who waits for a turn need not look at the rack each time it asks for it.
	if w := m.stillInLine(ctx, t.key); w != nil {
		return w
	}

	defer m.giveBack(t.key)

	left, err := m.removeInstances(ctx, t)
	if err != nil {
		return err
	}

	if left != nil {
		return left
	}

	if err := m.removeDisks(ctx, t); err != nil {
		return err
	}

	return m.removeAddresses(ctx, t)
}

// Settled answers a wait while a create without an answer may still be carried out
// by the rack.
func (m *Machines) Settled(spec *specs.InstanceSpec) error { return m.settled(spec, m.now()) }

// settled holds the end of a teardown back while a create without an answer may
// still be carried out by the rack.
func (m *Machines) settled(spec *specs.InstanceSpec, looked time.Time) error {
	unsure := m.unsure(spec)
	if unsure.IsZero() {
		return nil
	}

	if left := unsure.Add(m.cfg.Settle).Sub(looked); left > 0 {
		return waitFor(min(left, 10*time.Second), "a create call without an answer may still be carried out, watching for %s more", left.Round(time.Second))
	}

	return nil
}

// removeInstances deletes the known instance, or whatever bears the request's
// mark. left is a wait while one is still there.
func (m *Machines) removeInstances(ctx context.Context, t target) (left, err error) {
	if id := t.instanceID; id != "" {
		if t.sure && m.deletedByUs(id) {
			return nil, nil
		}

		if w := m.beforeLook(ctx, t); w != nil {
			return w, nil
		}

		i, err := m.viewStopping(ctx, t)

		switch rack.ClassOf(err) {
		case rack.ClassOK:
			if !m.marked(i.Description, t.key, naming.KindInstance) {
				return nil, mend(nil, "instance %s does not bear our mark: it is left alone", id)
			}

			return m.removeInstance(ctx, t.key, i), nil
		case rack.ClassGone:
		default:
			return nil, err
		}
	}

	all, err := m.proveGone(ctx, t.plan, t.instanceID)
	if err != nil {
		return nil, err
	}

	for i := range all {
		if m.marked(all[i].Description, t.key, naming.KindInstance) {
			if w := m.removeInstance(ctx, t.key, &all[i]); w != nil {
				left = w
			}
		}
	}

	return left, nil
}

// removeInstance does the next thing to one instance of ours. It returns nil
// when the instance was deleted in this call: that answer is proof enough.
func (m *Machines) removeInstance(ctx context.Context, key string, i *oxide.Instance) error {
	switch i.RunState {
	case oxide.InstanceStateStopped, oxide.InstanceStateFailed:
		// Never on any other state: the rack refuses, but cuts the running
		// machine's network all the same.
		return m.deleteInstance(ctx, key, i)
	case oxide.InstanceStateRunning, oxide.InstanceStateStarting, oxide.InstanceStateRebooting,
		oxide.InstanceStateMigrating, oxide.InstanceStateRepairing:
		return m.stop(ctx, key, i)
	case oxide.InstanceStateStopping:
		return m.stopPoll(i.Id, "the instance is stopping")
	case oxide.InstanceStateCreating, oxide.InstanceStateDestroyed:
		return waitFor(3*time.Second, "the instance is %s, waiting to remove it", i.RunState)
	}

	return waitFor(30*time.Second, "the instance is in state %q, which this version does not know", i.RunState)
}

func (m *Machines) deleteInstance(ctx context.Context, key string, i *oxide.Instance) error {
	if left, why := m.due(i.Id); left > 0 {
		return waitFor(left, "deleting the instance: %s", why)
	}

	if err := m.asked(ctx, Act{Verb: "delete", Kind: naming.KindInstance, ID: i.Id, Name: string(i.Name)}); err != nil {
		return err
	}

	waits, err := m.inTurn(ctx, m.starts, key, "delete the instance", func(ctx context.Context) error {
		return m.cfg.Rack.DeleteInstance(ctx, i.Id)
	})
	if waits != nil {
		return waits
	}

	m.tried(i.Id, err)

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		m.deleted(i.Id)

		return nil
	case rack.ClassCredentials, rack.ClassForbidden, rack.ClassVersion:
		return err
	default:
		return &Wait{Reason: "deleting the instance: " + rack.Reason(err), After: 2 * time.Second, Cause: err}
	}
}

// stop asks for a stop unless one was asked for lately. No error of it is
// final: the state is read again each time.
func (m *Machines) stop(ctx context.Context, key string, i *oxide.Instance) error {
	m.mu.Lock()
	s, asked := m.stops[i.Id]
	m.mu.Unlock()

	now := m.now()

	if asked && now.Sub(s.last) < stopAgain {
		return m.stopPoll(i.Id, "the instance was told to stop and is "+string(i.RunState))
	}

	if err := m.asked(ctx, Act{Verb: "stop", Kind: naming.KindInstance, ID: i.Id, Name: string(i.Name)}); err != nil {
		return err
	}

	waits, err := m.inTurn(ctx, m.starts, key, "stop the instance", func(ctx context.Context) error {
		return m.cfg.Rack.StopInstance(ctx, i.Id)
	})
	if waits != nil {
		return waits
	}

	if !asked {
		s.first = now
	}

	s.last, s.project = now, i.ProjectId

	m.mu.Lock()
	m.stops[i.Id] = s
	m.mu.Unlock()

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		return m.stopPoll(i.Id, "the instance is stopping")
	case rack.ClassCredentials, rack.ClassForbidden, rack.ClassVersion:
		m.forgetStop(i.Id)

		return err
	default:
		// Not accepted, so the next one need not wait for half a minute.
		m.mu.Lock()
		m.stops[i.Id] = stop{first: s.first, last: now.Add(5*time.Second - stopAgain), project: s.project}
		m.mu.Unlock()

		return &Wait{Reason: "stopping the instance: " + rack.Reason(err), After: 5 * time.Second, Cause: err}
	}
}

// removeDisks deletes every disk of the project that bears the request's mark
// as boot or data disk. A disk that somebody attached later has no such mark.
func (m *Machines) removeDisks(ctx context.Context, t target) error {
	// Of an instance that was deleted just now the disks are there.
	if m.deletedByUs(t.instanceID) {
		if w := m.ask(ctx, m.deletes, t.key, "delete disks"); w != nil {
			return w
		}
	}

	all, err := m.cfg.Rack.SeekDisks(ctx, t.plan.GetProjectId(), t.hasDisks)
	if err != nil {
		if rack.ClassOf(err) == rack.ClassGone {
			return m.proveProjectGone(ctx, t.plan, err)
		}

		return err
	}

	var (
		ready []oxide.Disk
		left  error
	)

	for i := range all {
		if !m.marked(all[i].Description, t.key, naming.KindBoot, naming.KindData) {
			continue
		}

		if w := m.notYet(all[i]); w != nil {
			left = sooner(left, w)
		} else {
			ready = append(ready, all[i])
		}
	}

	if len(ready) == 0 {
		return left
	}

	waits, err := m.inTurn(ctx, m.deletes, t.key, "delete disks", func(ctx context.Context) error {
		return m.deleteDisks(ctx, ready)
	})

	return sooner(sooner(left, waits), err)
}

// hasDisks says that all disks that can bear the mark are among these. They are
// deleted then, and the rack's answers prove more than the end of the list.
func (t target) hasDisks(all []oxide.Disk) bool {
	if !t.sure || len(t.disks) == 0 {
		return false
	}

	there := map[string]bool{}
	for i := range all {
		there[all[i].Id] = true
	}

	for _, d := range t.disks {
		if !there[d.GetId()] {
			return false
		}
	}

	return true
}

// sooner is the error to act upon: one that is no wait, else the shorter wait.
func sooner(a, b error) error {
	wa, isA := AsWait(a)
	wb, isB := AsWait(b)

	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case !isA:
		return a
	case !isB:
		return b
	case wb.After < wa.After:
		return b
	default:
		return a
	}
}

// deleteWithin bounds how long one request deletes disks in its turn; what is
// left is deleted in the next.
const deleteWithin = 10 * time.Second

func (m *Machines) deleteDisks(ctx context.Context, disks []oxide.Disk) error {
	var (
		began = m.now()
		left  error
	)

	for i := range disks {
		if m.now().Sub(began) > deleteWithin {
			return sooner(left, waitFor(time.Second, "%d disks are still to be deleted", len(disks)-i))
		}

		left = sooner(left, m.deleteDisk(ctx, disks[i]))
	}

	return left
}

// notYet is why a disk of ours can not be deleted now; nil when it can.
func (m *Machines) notYet(d oxide.Disk) error {
	switch d.State.State() {
	case oxide.DiskStateStateDetached, oxide.DiskStateStateFaulted:
	case oxide.DiskStateStateAttached:
		return waitFor(5*time.Second, "disk %q is attached to %s: detach it if that is not the machine being removed", d.Name, holder(d))
	default:
		return waitFor(3*time.Second, "disk %q is %s, waiting to delete it", d.Name, d.State.State())
	}

	if left, why := m.due(d.Id); left > 0 {
		return waitFor(left, "deleting disk %q: %s", d.Name, why)
	}

	return nil
}

// deleteDisk deletes one disk of ours. It returns nil when that is done.
func (m *Machines) deleteDisk(ctx context.Context, d oxide.Disk) error {
	if err := m.asked(ctx, Act{Verb: "delete", Kind: naming.KindBoot, ID: d.Id, Name: string(d.Name)}); err != nil {
		return err
	}

	err := m.cfg.Rack.DeleteDisk(ctx, d.Id)
	m.tried(d.Id, err)

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		return nil
	case rack.ClassCredentials, rack.ClassForbidden, rack.ClassVersion:
		return err
	default:
		// Also after a 404: whether the disk is gone is for the next list to say.
		return &Wait{Reason: fmt.Sprintf("deleting disk %q: %s", d.Name, rack.Reason(err)), After: 2 * time.Second, Cause: err}
	}
}

func holder(d oxide.Disk) string {
	if a, ok := d.State.AsAttached(); ok {
		return "instance " + a.Instance
	}

	return "another instance"
}
