package instance

import (
	"context"
	"maps"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

const (
	// firstPoll is how long after a stop the instance is looked at for the first
	// time: most stops take some three seconds.
	firstPoll = 3500 * time.Millisecond
	// minPoll and maxPoll bound the time between two looks, which is a quarter of
	// what the stop has taken so far.
	minPoll = 1500 * time.Millisecond
	maxPoll = 30 * time.Second

	// crowd is how many instances must start or stop in a project for one list of
	// all to serve them.
	crowd = 3
	// rollLife is how old such a list may be.
	rollLife = time.Second
	// stopForgotten is after how long one no longer counts for a crowd: somebody
	// else has ended its request. The rack forces a stop after ten minutes.
	stopForgotten = 15 * time.Minute
)

// stop remembers when an instance was told to stop. Losing it with the process
// only means one stop more.
type stop struct {
	first, last time.Time
	project     string
	// next is when to look again, and why is what is told until then.
	next time.Time
	why  string
}

// roll is one list of a project's instances. After one that failed there are none
// in it, and each instance is looked at by itself.
type roll struct {
	began     time.Time
	instances map[string]*oxide.Instance
	// underWay says that there is no answer yet.
	underWay bool
}

// stopPoll is the wait for the next look at an instance that is stopping.
func (m *Machines) stopPoll(id, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	s, ok := m.stops[id]
	if !ok {
		return waitFor(firstPoll, "%s", why)
	}

	now := m.now()
	after := min(max(now.Sub(s.first)/4, minPoll), maxPoll)

	if now.Sub(s.last) < firstPoll {
		after = max(after, s.last.Add(firstPoll).Sub(now))
	}

	s.next, s.why = now.Add(after), why
	m.stops[id] = s

	return waitFor(after, "%s", why)
}

// beforeLook is why an instance is not looked at now: its next look is later, and
// whatever wakes the teardown earlier costs no call; or there is no turn yet for
// what will come of the first look.
func (m *Machines) beforeLook(ctx context.Context, t target) error {
	m.mu.Lock()
	s, told := m.stops[t.instanceID]
	m.mu.Unlock()

	if left := s.next.Sub(m.now()); left > 0 {
		return waitFor(left, "%s", s.why)
	}

	// An instance that was deleted is not stopped, and a turn that has come, to
	// delete the disks perhaps, is not given up for one that may not be needed: among
	// several that wait, each would give its own up for ever.
	if told || m.deletedByUs(t.instanceID) || m.hasTurn(t.key) {
		return nil
	}

	return m.ask(ctx, m.starts, t.key, "stop the instance")
}

func (m *Machines) forgetStop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.stops, id)
}

// deleted remembers that the rack has deleted an instance, which needs no further
// proof.
func (m *Machines) deleted(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	now := m.now()
	maps.DeleteFunc(m.gone, func(_ string, at time.Time) bool { return now.Sub(at) > time.Hour })

	delete(m.stops, id)
	m.gone[id] = now
}

func (m *Machines) deletedByUs(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	_, ok := m.gone[id]

	return ok
}

// told is when an instance was told to start.
type told struct {
	at      time.Time
	project string
	// notYet is of when the last look was that did not show it running.
	notYet time.Time
}

// viewStopping reads the known instance of a removal.
func (m *Machines) viewStopping(ctx context.Context, t target) (*oxide.Instance, error) {
	m.mu.Lock()
	s := m.stops[t.instanceID]
	m.mu.Unlock()

	i, _, err := m.view(ctx, t.instanceID, t.plan.GetProjectId(), s.last, s.why)

	return i, err
}

// view reads an instance that was told something at a time; zero is never. Where
// many in a project were, one list serves all of them for a moment, if it was begun
// after that: an older answer tells nothing of what came of it. asOf is when the
// question was asked.
func (m *Machines) view(
	ctx context.Context, id, project string, at time.Time, why string,
) (i *oxide.Instance, asOf time.Time, err error) {
	m.mu.Lock()

	now := m.now()
	called, awaited := m.rolls[project], m.awaited(project, now)
	alone := at.IsZero() || len(awaited) < crowd
	due := !alone && !called.underWay && (now.Sub(called.began) >= rollLife || !called.began.After(at))

	if due {
		called = roll{began: now, underWay: true}
		m.rolls[project] = called
	}

	m.mu.Unlock()

	switch {
	case alone:
	case due:
		called = m.callOut(ctx, project, now, awaited)
	case called.underWay:
		return nil, time.Time{}, waitFor(minPoll/3, "%s", why)
	}

	// An instance that no list shows is looked at by itself.
	if i := called.instances[id]; !alone && i != nil && called.began.After(at) {
		found := *i

		return &found, called.began, nil
	}

	i, err = m.cfg.Rack.ViewInstance(ctx, id)

	return i, now, err
}

// callOut makes the list, which need not go on when all that are awaited are in it.
func (m *Machines) callOut(ctx context.Context, project string, began time.Time, awaited map[string]bool) roll {
	fresh := roll{began: began, instances: map[string]*oxide.Instance{}}

	// Also when the call panics: nobody would make a list again.
	defer func() {
		m.mu.Lock()
		m.rolls[project] = fresh
		m.mu.Unlock()
	}()

	all, err := m.cfg.Rack.SeekInstances(ctx, project, func(all []oxide.Instance) bool {
		found := 0

		for i := range all {
			if awaited[all[i].Id] {
				found++
			}
		}

		return found == len(awaited)
	})
	for i := range all {
		if err == nil {
			fresh.instances[all[i].Id] = &all[i]
		}
	}

	return fresh
}

// awaited are the instances of a project that start or stop. The caller holds the
// lock.
func (m *Machines) awaited(project string, now time.Time) map[string]bool {
	all := map[string]bool{}

	for id, s := range m.stops {
		if s.project == project && now.Sub(s.last) < stopForgotten {
			all[id] = true
		}
	}

	for id, s := range m.starting {
		if s.project == project && now.Sub(s.at) < stopForgotten {
			all[id] = true
		}
	}

	return all
}
