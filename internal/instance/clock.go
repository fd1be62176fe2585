package instance

import (
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// Stored times are of the clock of whoever wrote them: a replica on another
// machine, or this one before its clock was set. They say how long something has
// been only where an error of it costs a call and no more. What a teardown must be
// sure of is counted by this process's own clock, from when it began.

// clockDoubt is how far clocks may be apart without any harm.
const clockDoubt = time.Hour

// left is how long after an attempt there is still to wait, of a pause. One that
// seems to be yet to come was stored by a clock that was ahead, or ours was set
// back: who waited for it might wait for days.
func (m *Machines) left(attempt *specs.Attempt, pause time.Duration) time.Duration {
	left := attempt.GetAt().AsTime().Add(pause).Sub(m.now())
	if left > pause {
		return 0
	}

	return left
}

// bygone is a stored time of an earlier process, or of one on another machine, by
// our clock: it had ended when this one began. What is over by all clocks keeps
// its time, so that nothing waits for it.
func (m *Machines) bygone(t time.Time) time.Time {
	if m.now().Sub(t) > clockDoubt && m.since.Sub(t) > 0 {
		return t
	}

	return m.since
}

// stamp remembers that an attempt was handed out to be stored, and until when a
// call of those before it may have left.
func (m *Machines) stamp(requestID string, unsure time.Time) { m.stampAs(requestID, requestID, unsure) }

// stampAs is stamp for an attempt of a request that is not at its instance.
func (m *Machines) stampAs(key, requestID string, unsure time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.stamped[key] = m.now()

	if !unsure.IsZero() {
		m.gaveUp[requestID] = later(m.gaveUp[requestID], unsure)
	}
}

// setUntried notes whether no call can have gone out for a request's instance.
func (m *Machines) setUntried(requestID string, so bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if so {
		m.untried[requestID] = true
	} else {
		delete(m.untried, requestID)
	}
}

func (m *Machines) isUntried(requestID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.untried[requestID]
}

// fresh says that an attempt is this process's, and young.
func (m *Machines) fresh(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	at, ours := m.stamped[key]

	return ours && m.now().Sub(at) <= freshAttempt
}
