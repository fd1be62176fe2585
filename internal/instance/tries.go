package instance

import (
	"context"
	"maps"
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
	ok, again, position := places.Ask(key)
	if !ok {
		return waitFor(again, "waiting for a turn to %s, number %d in line", what, position), nil
	}

	began := m.now()
	// Also when the call panics: a place that is kept holds others up.
	defer func() { places.Done(key, m.now().Sub(began)) }()

	return nil, call(ctx)
}

// leave gives up every place and memory of a request and its instance.
func (m *Machines) leave(requestID, instanceID string) {
	m.creates.Leave(requestID)
	m.starts.Leave(requestID)
	m.deletes.Leave(naming.RequestKey(requestID))

	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.stops, instanceID)
	delete(m.tries, instanceID)
	delete(m.gaveUp, requestID)
}
