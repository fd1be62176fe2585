package rack

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Clock is the time of a rack. The usual one is the system's, which within a
// bubble of testing/synctest is the bubble's.
type Clock interface {
	Now() time.Time
	// Sleep waits for a delay or the end of ctx; false for the latter.
	Sleep(ctx context.Context, d time.Duration) bool
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// StepClock stands still until it is stepped.
type StepClock struct {
	mu       sync.Mutex
	now      time.Time
	sleepers []*sleeper
	changed  chan struct{} // closed when somebody has gone to sleep
}

type sleeper struct {
	until time.Time
	woken chan struct{}
}

// NewStepClock is a clock that shows a time.
func NewStepClock(now time.Time) *StepClock {
	return &StepClock{now: now, changed: make(chan struct{})}
}

// Now is the time that the clock shows.
func (c *StepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

// Sleep waits until the clock has been stepped so far.
func (c *StepClock) Sleep(ctx context.Context, d time.Duration) bool {
	c.mu.Lock()
	s := &sleeper{until: c.now.Add(d), woken: make(chan struct{})}
	c.sleepers = append(c.sleepers, s)
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()

	select {
	case <-s.woken:
		return true
	case <-ctx.Done():
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.sleepers = slices.DeleteFunc(c.sleepers, func(x *sleeper) bool { return x == s })

	return false
}

// Step moves the clock, and wakes whose time has come, in order.
func (c *StepClock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(d)
	slices.SortStableFunc(c.sleepers, func(a, b *sleeper) int { return a.until.Compare(b.until) })

	for len(c.sleepers) > 0 && !c.sleepers[0].until.After(c.now) {
		close(c.sleepers[0].woken)
		c.sleepers = c.sleepers[1:]
	}
}

// Sleepers waits until at least n sleep, or ctx ends; it returns how many do.
func (c *StepClock) Sleepers(ctx context.Context, n int) int {
	for {
		c.mu.Lock()
		asleep, changed := len(c.sleepers), c.changed
		c.mu.Unlock()

		if asleep >= n {
			return asleep
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return asleep
		}
	}
}
