package instance

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// try remembers how often a delete has failed. Losing it with the process only
// means one try more.
type try struct {
	count uint32
	next  time.Time
	why   string
}

// due says how long the next delete of an object has still to wait, and why.
func (m *Machines) due(id string) (time.Duration, string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	t := m.tries[id]

	return t.next.Sub(m.now()), t.why
}

// tried notes how a delete went. One that failed is made again after ever
// longer pauses: some disks can not be deleted until the rack is mended.
func (m *Machines) tried(id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if err == nil {
		delete(m.tries, id)

		return
	}

	// What was removed by hand meanwhile is never tried again.
	maps.DeleteFunc(m.tries, func(_ string, t try) bool { return m.now().Sub(t.next) > time.Hour })

	t := m.tries[id]
	m.tries[id] = try{count: t.count + 1, next: m.now().Add(pause(t.count) / 2), why: rack.Reason(err)}
}

// inTurn makes a call that blocks for as long as the rack takes, if there is a
// place for it; otherwise it answers a wait and makes no call.
func (m *Machines) inTurn(ctx context.Context, places *Places, key, what string, call func(context.Context) error) (waits, err error) {
	if w := m.ask(ctx, places, key, what); w != nil {
		return w, nil
	}

	began := m.now()
	// Also when the call panics: a place that is kept holds others up.
	defer func() { places.Done(key, m.now().Sub(began)) }()

	return nil, call(ctx)
}

// line is where somebody waits for a turn.
type line struct {
	places *Places
	what   string
	// turn says that it has come.
	turn bool
}

// ask answers a wait until the turn has come, and remembers which.
func (m *Machines) ask(ctx context.Context, places *Places, key, what string) error {
	ok, again, position := places.Await(ctx, key, time.Time{})

	m.mu.Lock()
	before := m.lines[key]
	m.lines[key] = line{places: places, what: what, turn: ok}
	m.mu.Unlock()

	// What was waited for may have come about by itself.
	if before.places != nil && before.places != places {
		before.places.Leave(key)
	}

	if ok {
		return nil
	}

	return waitFor(again, "waiting for a turn to %s, number %d in line", what, position)
}

// stillInLine asks again for the turn that key waits for, if it does.
func (m *Machines) stillInLine(ctx context.Context, key string) error {
	m.mu.Lock()
	l, waits := m.lines[key]
	m.mu.Unlock()

	if !waits || l.turn {
		return nil
	}

	return m.ask(ctx, l.places, key, l.what)
}

// hasTurn says that a turn has come for key and was not used yet.
func (m *Machines) hasTurn(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.lines[key].turn
}

// giveBack gives a turn back that was not used: the rack was looked at after it
// had come, and there was nothing to do.
func (m *Machines) giveBack(key string) {
	m.mu.Lock()
	l, waits := m.lines[key]

	if waits && l.turn {
		delete(m.lines, key)
	}
	m.mu.Unlock()

	if waits && l.turn {
		l.places.GiveBack(key)
	}
}

// leave gives up every place and memory of a request and its instance.
func (m *Machines) leave(requestID, instanceID string) {
	m.creates.Leave(requestID)
	m.refusedCreates.Leave(requestID)
	m.refusedStarts.Leave(requestID)
	m.starts.Leave(requestID)
	m.starts.Leave(naming.RequestKey(requestID))
	m.deletes.Leave(naming.RequestKey(requestID))

	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.stops, instanceID)
	delete(m.starting, instanceID)
	delete(m.untried, requestID)
	delete(m.tries, instanceID)
	delete(m.gone, instanceID)
	delete(m.gaveUp, requestID)
	maps.DeleteFunc(m.stamped, func(key string, _ time.Time) bool { return key == requestID || strings.HasPrefix(key, requestID+"/") })
	delete(m.lines, naming.RequestKey(requestID))
	delete(m.lines, requestID)
}
