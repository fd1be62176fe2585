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

	// crowd is how many instances must be stopping in a project for one list of all
	// to serve them.
	crowd = 3
	// rollLife is how old such a list may be.
	rollLife = 2 * time.Second
	// stopForgotten is after how long a stop no longer counts for a crowd: somebody
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

// roll is one list of a project's instances. It is nil while the list is under
// way, and after one that failed: then each instance is looked at by itself.
type roll struct {
	began     time.Time
	instances map[string]*oxide.Instance
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
func (m *Machines) beforeLook(t target) error {
	m.mu.Lock()
	s, told := m.stops[t.instanceID]
	m.mu.Unlock()

	if left := s.next.Sub(m.now()); left > 0 {
		return waitFor(left, "%s", s.why)
	}

	if told {
		return nil
	}

	return m.ask(m.starts, t.key, "stop the instance")
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

// view reads the known instance of a removal. Where many are stopping at once, one
// list of the project serves all of them for a moment.
func (m *Machines) view(ctx context.Context, t target) (*oxide.Instance, error) {
	if i := m.calledOut(ctx, t); i != nil {
		return i, nil
	}

	return m.cfg.Rack.ViewInstance(ctx, t.instanceID)
}

// calledOut finds an instance that was told to stop in a list that was begun after
// that, and makes such a list if it is worth its call. It answers nil when the
// instance is to be looked at by itself, as one is that no list shows.
func (m *Machines) calledOut(ctx context.Context, t target) *oxide.Instance {
	project := t.plan.GetProjectId()

	m.mu.Lock()
	told, called := m.stops[t.instanceID].last, m.rolls[project]
	now := m.now()

	if told.IsZero() || !m.crowded(project, now) {
		m.mu.Unlock()

		return nil
	}

	if now.Sub(called.began) < rollLife {
		m.mu.Unlock()

		if i := called.instances[t.instanceID]; i != nil && called.began.After(told) {
			found := *i

			return &found
		}

		return nil
	}

	m.rolls[project] = roll{began: now}
	m.mu.Unlock()

	all, err := m.cfg.Rack.ListInstances(ctx, project)
	if err != nil {
		return nil
	}

	fresh := roll{began: now, instances: make(map[string]*oxide.Instance, len(all))}
	for i := range all {
		fresh.instances[all[i].Id] = &all[i]
	}

	m.mu.Lock()
	m.rolls[project] = fresh
	m.mu.Unlock()

	return fresh.instances[t.instanceID]
}

// crowded says whether a list costs less than looking at each instance. The caller
// holds the lock.
func (m *Machines) crowded(project string, now time.Time) bool {
	n := 0

	for _, s := range m.stops {
		if s.project == project && now.Sub(s.last) < stopForgotten {
			n++
		}
	}

	return n >= crowd
}
