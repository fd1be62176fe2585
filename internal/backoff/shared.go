// Package backoff shares a pause among all who fail for the same cause, so that
// what is tried again is tried by one of them for all.
//
//	Ask ── nobody failed, or the pause is over and nobody tries ──> may try ─┬─ Done: the cause is gone for all
//	  └─── else: told why, and when to ask again                             └─ Failed: a longer pause for all
package backoff

import (
	"math/rand/v2"
	"sync"
	"time"
)

// tryLife is after how long somebody who tries and says no more is not waited for.
const tryLife = 3 * time.Minute

// Shared is safe for concurrent use.
type Shared struct {
	// First is the pause after the first failure, 15 seconds if zero, Most the
	// longest one, 2 minutes if zero. Each is twice the one before, and up to a
	// quarter longer or shorter.
	First, Most time.Duration
	// Now is time.Now if nil.
	Now func() time.Time

	mu     sync.Mutex
	causes map[string]*cause
}

type cause struct {
	why   error
	pause time.Duration
	next  time.Time
	// who tries, and since when.
	who   string
	since time.Time
	// asked is when somebody last asked.
	asked time.Time
}

// Ask answers nil if who may try what fails for the cause, and otherwise why it
// has failed, and after how long to ask again.
func (s *Shared) Ask(key, who string) (why error, again time.Duration) { //nolint:revive,staticcheck // the error is the answer, not a failure
	s.mu.Lock()
	defer s.mu.Unlock()

	c, now := s.causes[key], s.now()
	if c == nil {
		return nil, 0
	}

	c.asked = now

	switch left := c.next.Sub(now); {
	case c.who == who:
		return nil, 0
	case left > 0:
		// Not all at the same moment: the first one tries, the others wait for it.
		return c.why, left + spread(5*time.Second)
	case c.who != "" && now.Sub(c.since) < tryLife:
		return c.why, spread(5 * time.Second)
	default:
		c.who, c.since = who, now

		return nil, 0
	}
}

// Failed has all wait for whom the cause is the same.
func (s *Shared) Failed(key, who string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := s.now()

	if s.causes == nil {
		s.causes = map[string]*cause{}
	}

	// What nobody has asked about for long is of no use.
	for k, c := range s.causes {
		if now.Sub(later(c.asked, c.next)) > time.Hour {
			delete(s.causes, k)
		}
	}

	c := s.causes[key]

	switch {
	case c == nil:
		c = &cause{pause: or(s.First, 15*time.Second)}
		s.causes[key] = c
	case c.who != who && now.Before(c.next):
		// It began before the others were told to wait.
		c.why = why

		return
	default:
		c.pause = min(2*c.pause, or(s.Most, 2*time.Minute))
	}

	c.why, c.who, c.next, c.asked = why, "", now.Add(spread(c.pause)), now
}

// Done says that what was tried worked, or failed in another way.
func (s *Shared) Done(key, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if c := s.causes[key]; c != nil && (c.who == who || c.who == "") {
		delete(s.causes, key)
	}
}

// Leave says that who will not try.
func (s *Shared) Leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, c := range s.causes {
		if c.who == who {
			c.who = ""
		}
	}
}

func (s *Shared) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}

	return s.Now()
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}

	return d
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}

	return a
}

func spread(d time.Duration) time.Duration {
	return d - d/4 + time.Duration(rand.Int64N(int64(d)/2+1)) //nolint:gosec // spreading load is no secret
}
