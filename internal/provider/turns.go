package provider

import (
	"context"
	"sync"
	"time"
)

// turns counts the steps and teardowns that run, and keeps new ones from beginning
// while the SDK's Run is to end: a step that has made something stores what it made
// when it returns, and can not after Run's context has ended.
type turns struct {
	mu      sync.Mutex
	closed  bool
	running int
	idle    chan struct{} // closed when closed and none runs
}

// begin answers false when ctx ended before the turn could begin.
func (t *turns) begin(ctx context.Context) bool {
	t.mu.Lock()

	if closed := t.closed; closed {
		t.mu.Unlock()
		// Nothing is told: the status stays what it was.
		<-ctx.Done()

		return false
	}

	defer t.mu.Unlock()

	t.running++

	return true
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.running--
	t.tell()
}

func (t *turns) tell() {
	if t.closed && t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// open lets turns begin.
func (t *turns) open() {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.closed, t.idle = false, nil
}

// close lets no more begin, and answers what is closed when none runs any more.
func (t *turns) close() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()

	idle := make(chan struct{})
	t.closed, t.idle = true, idle
	t.tell()

	return idle
}

const (
	// drainMax bounds the wait for running steps when the key has changed: longer
	// than any call to the rack.
	drainMax = 150 * time.Second
	// drainTail is for the SDK to store what a step has returned. Where it is too
	// short, the next step finds in the rack what was not stored.
	drainTail = 250 * time.Millisecond
)

// drain waits until no step runs, or until there is no more time.
func (d *Daemon) drain(ctx context.Context) {
	idle := d.work.turns.close()

	select {
	case <-idle:
	case <-ctx.Done():
		return
	case <-d.end.Done():
		return
	case <-time.After(drainMax):
		return
	}

	select {
	case <-ctx.Done():
	case <-time.After(drainTail):
	}
}
