package instance

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Places hands out a bounded number of places for calls that block while the
// rack works. Who gets no place is told when to ask again, and places go in the
// order of coming, give or take as many as there are places: one that is free is not
// kept for somebody who has yet to ask again.
//
//	Ask ── place free, our turn ──> granted ── call ──> Done
//	  └─── else ──> queued: told a time; dropped when it does not ask again
//
// Await waits for a place that must come in a moment: a way through Omni and back
// would leave it empty for longer than most calls take.
type Places struct {
	limit int
	now   func() time.Time

	mu      sync.Mutex
	granted map[string]time.Time
	queue   []ticket
	typical time.Duration
	// came are when those came that were told of before they asked.
	came map[string]time.Time
	// freed is closed when a place has become free, or was given up.
	freed chan struct{}
	// inside is how many wait in Await.
	inside int
}

type ticket struct {
	key     string
	came    time.Time
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
	// minAsk keeps who waits from asking hot, and maxAsk is how long a place may be
	// left empty after many have gone away.
	minAsk = 100 * time.Millisecond
	maxAsk = time.Minute
	// awaited is how soon a place must be free for somebody to wait for it inside.
	awaited = 250 * time.Millisecond
)

// NewPlaces makes limit places; typical is the first guess at how long one is
// held.
func NewPlaces(limit int, typical time.Duration) *Places {
	return &Places{
		limit: max(limit, 1), now: time.Now, granted: map[string]time.Time{}, typical: typical, came: map[string]time.Time{},
		freed: make(chan struct{}),
	}
}

// Came notes when key came, before it asks.
func (p *Places) Came(key string, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.came[key] = at
}

// Ask answers whether key, which came at some time, has a place, and otherwise
// after how long and at which position of the queue (from 1) to ask again. Zero is
// for who comes now.
func (p *Places) Ask(key string, came time.Time) (ok bool, again time.Duration, position int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	ok, again, position = p.ask(key, came)

	return ok, max(again, minAsk), position
}

// Await is Ask that waits for a place that is to be free in a moment. No more than
// there are places wait at once, so that they keep no worker from others.
func (p *Places) Await(ctx context.Context, key string, came time.Time) (ok bool, again time.Duration, position int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	ok, again, position = p.ask(key, came)
	if ok || again > awaited || p.inside >= p.limit {
		return ok, max(again, minAsk), position
	}

	p.inside++
	defer func() { p.inside-- }()

	late := time.NewTimer(awaited)
	defer late.Stop()

	for waiting := true; waiting && !ok; {
		freed := p.freed
		p.mu.Unlock()

		select {
		case <-freed:
		case <-late.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}

		p.mu.Lock()

		ok, again, position = p.ask(key, came)
	}

	return ok, max(again, minAsk), position
}

// ask is Ask with the lock held. What it answers may be less than minAsk.
func (p *Places) ask(key string, came time.Time) (ok bool, again time.Duration, position int) {
	now := p.now()
	p.expire(now)

	if _, held := p.granted[key]; held {
		p.granted[key] = now

		return true, 0, 0
	}

	at := slices.IndexFunc(p.queue, func(t ticket) bool { return t.key == key })
	if at < 0 {
		if told, ok := p.came[key]; ok {
			came = told
		}

		if came.IsZero() || came.After(now) {
			came = now
		}

		at, _ = slices.BinarySearchFunc(p.queue, came, func(t ticket, came time.Time) int {
			// Behind all that came at the same time.
			if t.came.After(came) {
				return 1
			}

			return -1
		})
		p.queue = slices.Insert(p.queue, at, ticket{key: key, came: came})
	}

	if free := p.limit - len(p.granted); free > 0 && at < free+p.limit {
		p.queue = slices.Delete(p.queue, at, at+1)
		p.granted[key] = now

		return true, 0, 0
	}

	again = p.expected(at, now)
	p.queue[at].expires = now.Add(again + queueGrace)

	return false, again, at + 1
}

// expected is when to ask for the place that whoever is at a position, from 0, gets:
// at three quarters of the time, since a guess that is too long leaves places empty.
func (p *Places) expected(at int, now time.Time) time.Duration {
	held := slices.SortedFunc(maps.Values(p.granted), time.Time.Compare)

	left := time.Duration(at/p.limit) * p.typical
	if n := at % p.limit; n < len(held) {
		left += max(held[n].Add(p.typical).Sub(now), 0)
	}

	if at >= p.limit {
		left = left * 3 / 4
	}

	return min(left, maxAsk)
}

// Done gives key's place back after a call that took busy.
func (p *Places) Done(key string, busy time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if _, held := p.granted[key]; !held {
		return
	}

	p.free(key)
	delete(p.came, key)

	p.typical = (3*p.typical + busy) / 4
}

// free ends a grant and tells those who wait inside. The caller holds the lock.
func (p *Places) free(key string) {
	if _, held := p.granted[key]; !held {
		return
	}

	delete(p.granted, key)
	close(p.freed)

	p.freed = make(chan struct{})
}

// GiveBack gives key's place back, if it has one, without a call made in it.
func (p *Places) GiveBack(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.free(key)
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

	p.queue = slices.DeleteFunc(p.queue, func(t ticket) bool { return t.key == key })
	delete(p.came, key)
	p.free(key)
}

func (p *Places) expire(now time.Time) {
	for k, since := range p.granted {
		if now.Sub(since) > grantLife {
			p.free(k)
		}
	}

	p.queue = slices.DeleteFunc(p.queue, func(t ticket) bool { return !now.Before(t.expires) })
}
