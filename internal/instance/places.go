package instance

import (
	"slices"
	"sync"
	"time"
)

// Places hands out a bounded number of places for calls that block while the
// rack works. Nobody waits inside: who gets no place is told when to ask again,
// and places go in the order of asking.
//
//	Ask ── place free, our turn ──> granted ── call ──> Done
//	  └─── else ──> queued: told a time; dropped when it does not ask again
type Places struct {
	limit int
	now   func() time.Time

	mu      sync.Mutex
	granted map[string]time.Time
	queue   []ticket
	typical time.Duration
}

type ticket struct {
	key     string
	expires time.Time
}

const (
	// sagaTime is the rack client's deadline for one saga.
	sagaTime = 120 * time.Second
	// grantLife is how long a place is kept for somebody who has not come back:
	// longer than any call, so that it only matters after a lost requeue.
	grantLife = sagaTime + 60*time.Second
	// queueGrace is how much later than told a ticket may ask again.
	queueGrace = 30 * time.Second
	// minAsk keeps who waits from asking hot: each asking may cost calls.
	minAsk = 500 * time.Millisecond
	maxAsk = 20 * time.Second
)

// NewPlaces makes limit places; typical is the first guess at how long one is
// held.
func NewPlaces(limit int, typical time.Duration) *Places {
	return &Places{limit: max(limit, 1), now: time.Now, granted: map[string]time.Time{}, typical: typical}
}

// Ask answers whether key has a place, and otherwise after how long and at
// which position of the queue (from 1) to ask again.
func (p *Places) Ask(key string) (ok bool, again time.Duration, position int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	now := p.now()
	p.expire(now)

	if _, held := p.granted[key]; held {
		p.granted[key] = now

		return true, 0, 0
	}

	at := slices.IndexFunc(p.queue, func(t ticket) bool { return t.key == key })
	if at < 0 {
		at = len(p.queue)
		p.queue = append(p.queue, ticket{key: key})
	}

	if free := p.limit - len(p.granted); at < free {
		p.queue = slices.Delete(p.queue, at, at+1)
		p.granted[key] = now

		return true, 0, 0
	}

	rounds := at/p.limit + 1
	again = min(max(time.Duration(rounds)*p.typical, minAsk), maxAsk)
	p.queue[at].expires = now.Add(again + queueGrace)

	return false, again, at + 1
}

// Done gives key's place back after a call that took busy.
func (p *Places) Done(key string, busy time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if _, held := p.granted[key]; !held {
		return
	}

	delete(p.granted, key)

	p.typical = (3*p.typical + busy) / 4
}

// GiveBack gives key's place back, if it has one, without a call made in it.
func (p *Places) GiveBack(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.granted, key)
}

// Load is how many places are taken and how many there are, and how many wait.
func (p *Places) Load() (taken, limit, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.expire(p.now())

	return len(p.granted), p.limit, len(p.queue)
}

// Leave takes key out, held or queued.
func (p *Places) Leave(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.granted, key)
	p.queue = slices.DeleteFunc(p.queue, func(t ticket) bool { return t.key == key })
}

func (p *Places) expire(now time.Time) {
	for k, since := range p.granted {
		if now.Sub(since) > grantLife {
			delete(p.granted, k)
		}
	}

	p.queue = slices.DeleteFunc(p.queue, func(t ticket) bool { return !now.Before(t.expires) })
}
