package instance

import (
	"context"
	"maps"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	// firstStartTime is how long a start is taken to last until one has been seen.
	firstStartTime = 2 * time.Second
	// maxStartTime bounds what is learned of that: one that waits for room lasts
	// long. That starts have become faster is tried once in fasterEvery.
	maxStartTime = 10 * time.Second
	fasterEvery  = time.Hour
)

// Start brings the instance to where it was seen running, once. It returns
// ErrVanished when the instance is proven gone.
func (m *Machines) Start(ctx context.Context, spec *specs.InstanceSpec) error {
	if spec.GetRunningSince() != nil {
		return nil
	}

	// One that was just made is stopped; for one that runs, a start does nothing.
	if spec.GetStart() == nil {
		return m.start(ctx, spec, oxide.InstanceStateStopped)
	}

	if w := m.beforeStarted(spec); w != nil {
		return w
	}

	id := spec.GetInstanceId()

	i, asOf, err := m.view(ctx, id, spec.GetPlan().GetProjectId(), m.toldToStart(id), "the instance is starting")
	if err != nil {
		if rack.ClassOf(err) == rack.ClassGone {
			return m.vanished(ctx, spec)
		}

		return err
	}

	switch i.RunState {
	case oxide.InstanceStateRunning:
		m.started(spec, asOf)

		return nil
	case oxide.InstanceStateStopped, oxide.InstanceStateFailed:
		return m.start(ctx, spec, i.RunState)
	case oxide.InstanceStateStarting, oxide.InstanceStateCreating:
		m.notYetStarted(id, asOf)

		return waitFor(m.startPoll(spec), "the instance is %s", i.RunState)
	case oxide.InstanceStateRebooting, oxide.InstanceStateMigrating, oxide.InstanceStateRepairing,
		oxide.InstanceStateStopping, oxide.InstanceStateDestroyed:
		// Destroyed is shown for a moment by some racks while an instance stops;
		// only a 404 means gone.
		return waitFor(5*time.Second, "the instance is %s, waiting for it to run", i.RunState)
	}

	return waitFor(30*time.Second, "the instance is in state %q, which this version does not know", i.RunState)
}

// started notes that the instance was seen running, and about how long that took.
func (m *Machines) started(spec *specs.InstanceSpec, asOf time.Time) {
	spec.RunningSince = timestamppb.New(m.now())

	m.mu.Lock()
	defer m.mu.Unlock()

	t, ok := m.starting[spec.GetInstanceId()]
	delete(m.starting, spec.GetInstanceId())

	switch {
	case !ok:
	case !t.notYet.IsZero():
		// Between these two looks, which are a second apart.
		m.startTime = min(max(m.startTime, t.notYet.Add(time.Second).Sub(t.at)), maxStartTime)
		m.faster = m.now().Add(fasterEvery)
	case m.now().After(m.faster):
		m.startTime = min(max(m.startTime*9/10, firstStartTime), asOf.Sub(t.at))
		m.faster = m.now().Add(fasterEvery)
	}
}

// notYetStarted notes that the instance was not running yet.
func (m *Machines) notYetStarted(id string, asOf time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if t, ok := m.starting[id]; ok {
		t.notYet = asOf
		m.starting[id] = t
	}
}

// toldToStart is when this process told the instance to start; zero if it did not.
func (m *Machines) toldToStart(id string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.starting[id].at
}

// beforeStarted is a wait while the instance can hardly be running yet: whatever
// wakes the request earlier costs no call.
func (m *Machines) beforeStarted(spec *specs.InstanceSpec) error {
	m.mu.Lock()
	told, ok := m.starting[spec.GetInstanceId()]
	left := told.at.Add(m.startTime).Sub(m.now())
	m.mu.Unlock()

	if !ok || left <= 0 {
		return nil
	}

	return waitFor(left, "the instance is starting")
}

// start asks for the start when its time has come. The call is harmless to
// repeat, so nothing needs to be stored before it.
func (m *Machines) start(ctx context.Context, spec *specs.InstanceSpec, state oxide.InstanceState) error {
	attempt := spec.GetStart()

	if attempt != nil {
		if left := m.left(attempt, pause(attempt.GetCount())); left > 0 {
			reason := attempt.GetLastError()
			if reason == "" {
				reason = "the rack accepted the start and the instance is " + string(state)
			}

			return waitFor(left, "starting the instance: %s", reason)
		}
	}

	if err := mayTry(m.refusedStarts, spec.GetPlan(), "starting the instance: "); err != nil {
		return err
	}

	waits, err := m.inTurn(ctx, m.starts, spec.GetPlan().GetRequestId(), "start the instance", func(ctx context.Context) error {
		// This step may have begun long before the request was given up. A guest that
		// boots after that joins Omni for a request that is gone, and stays in its
		// list of links.
		if err := m.stillWanted(ctx, spec.GetPlan().GetRequestId()); err != nil {
			return err
		}

		return m.cfg.Rack.StartInstance(ctx, spec.GetInstanceId())
	})
	if waits == nil && isWait(err) {
		waits = err
	}

	if waits != nil {
		return waits
	}

	if class := rack.ClassOf(err); class == rack.ClassCapacity || err == nil {
		triedFor(m.refusedStarts, spec.GetPlan(), err)
	} else {
		// About this instance.
		m.refusedStarts.Leave(spec.GetPlan().GetRequestId())
	}

	spec.Start = &specs.Attempt{At: timestamppb.New(m.now()), Count: attempt.GetCount() + 1}

	if rack.ClassOf(err) == rack.ClassInvalid {
		spec.Start.Invalid = attempt.GetInvalid() + 1
	}

	if err != nil {
		return m.startFailed(ctx, spec, err)
	}

	m.mu.Lock()
	maps.DeleteFunc(m.starting, func(_ string, t told) bool { return m.now().Sub(t.at) > stopForgotten })
	m.starting[spec.GetInstanceId()] = told{at: m.now(), project: spec.GetPlan().GetProjectId()}
	after := m.startTime
	m.mu.Unlock()

	return waitFor(after, "the instance is starting")
}

// stillWanted answers a wait unless Omni wants the request's machine at this
// moment.
func (m *Machines) stillWanted(ctx context.Context, requestID string) error {
	if m.cfg.Wanted == nil {
		return nil
	}

	switch wanted, err := m.cfg.Wanted(ctx, requestID); {
	case err != nil:
		return &Wait{Reason: "asking Omni whether the machine is still wanted", After: 5 * time.Second, Cause: err}
	case !wanted:
		return waitFor(5*time.Second, "the machine is not started: its request is being removed")
	default:
		return nil
	}
}

// maxInvalidStarts is how often a start may be refused as invalid before it
// counts as something to mend, such as groups that contradict each other.
const maxInvalidStarts = 3

func (m *Machines) startFailed(ctx context.Context, spec *specs.InstanceSpec, err error) error {
	reason := "starting the instance: " + rack.Reason(err)
	spec.Start.LastError = rack.Reason(err)

	switch class := rack.ClassOf(err); {
	case class == rack.ClassGone:
		return m.vanished(ctx, spec)
	case class == rack.ClassCredentials, class == rack.ClassForbidden, class == rack.ClassVersion:
		return err
	case class == rack.ClassInvalid && spec.GetStart().GetInvalid() > maxInvalidStarts:
		return mend(err, "%s", reason)
	}

	return &Wait{Reason: reason, After: pause(spec.GetStart().GetCount()), Cause: err}
}

// startPoll looks often at first, when most instances come up, and then less.
func (m *Machines) startPoll(spec *specs.InstanceSpec) time.Duration {
	if at := spec.GetStart().GetAt(); at != nil {
		return min(max(m.now().Sub(at.AsTime())/4, time.Second), 15*time.Second)
	}

	return 2 * time.Second
}

// vanished tells a proven absence from a doubtful one.
func (m *Machines) vanished(ctx context.Context, spec *specs.InstanceSpec) error {
	if _, err := m.proveGone(ctx, spec.GetPlan(), spec.GetInstanceId()); err != nil {
		return err
	}

	return ErrVanished
}

// Forget clears what is known of an instance that is proven gone, after its
// left-over disks are removed, so that Create makes another one.
func (m *Machines) Forget(ctx context.Context, spec *specs.InstanceSpec) error {
	if err := m.removeDisks(ctx, targetOf(spec)); err != nil {
		return err
	}

	spec.InstanceId, spec.Disks, spec.Start, spec.RunningSince = "", nil, nil, nil
	spec.Incarnation++
	// Whatever takes our instances away may do so again: each costs a longer
	// pause.
	spec.Create = &specs.Attempt{
		At: timestamppb.New(m.now()), Count: spec.GetIncarnation() - 1, Failed: true,
		LastError: "the last one vanished from the rack before it ran",
	}

	return storeNow()
}
