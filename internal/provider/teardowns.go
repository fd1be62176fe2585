package provider

import (
	"sync"

	"go.uber.org/zap"
)

// teardowns remembers what each request's teardown waits for. By then the
// request has no status in Omni any more, so the log is where it is told: once,
// and again when it changes.
type teardowns struct {
	mu      sync.Mutex
	reasons map[string]string
}

func newTeardowns() *teardowns { return &teardowns{reasons: map[string]string{}} }

// waits notes a reason; numbers and the rack's request IDs in it are no change.
func (t *teardowns) waits(logger *zap.Logger, requestID, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	before, seen := t.reasons[requestID]
	t.reasons[requestID] = reason

	if !seen || withoutIDs(before) != withoutIDs(reason) {
		logger.Info("removing the machine: " + oneLine(reason))
	}
}

func (t *teardowns) done(requestID string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.reasons, requestID)
}
