package provider

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
)

// SubjectRemovals is the note about teardowns that do not end on the health board.
const SubjectRemovals = "removals"

const (
	// longTeardown is how long a teardown may take before health tells of it.
	longTeardown = 5 * time.Minute
	// quietTeardown is after how long a teardown that is no longer tried is
	// forgotten: somebody else has ended it.
	quietTeardown = 5 * time.Minute
)

// teardowns remembers what each request's teardown waits for. By then the
// request has no status in Omni any more, so the log is where it is told, once
// and again when it changes; and health, when a person must act or it takes long.
type teardowns struct {
	board *health.Board

	mu    sync.Mutex
	waits map[string]teardown
	// began is when each removal was first tried by this process.
	began map[string]time.Time
}

type teardown struct {
	reason string
	// since is when it first waited, tried when it last did.
	since, tried time.Time
	// mend says that a person must act.
	mend bool
}

func newTeardowns(board *health.Board) *teardowns {
	return &teardowns{board: board, waits: map[string]teardown{}, began: map[string]time.Time{}}
}

// wait notes a reason; numbers and the rack's request IDs in it are no change.
func (t *teardowns) wait(logger *zap.Logger, requestID, reason string, mend bool) {
	t.mu.Lock()

	before, seen := t.waits[requestID]
	if !seen {
		before.since = time.Now()
	}

	t.waits[requestID] = teardown{reason: oneLine(reason), since: before.since, tried: time.Now(), mend: mend}
	t.mu.Unlock()

	if !seen || withoutIDs(before.reason) != withoutIDs(oneLine(reason)) {
		logger.Info("removing the machine: " + oneLine(reason))
	}

	t.tell()
}

// begin notes that a removal is tried.
func (t *teardowns) begin(requestID string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, known := t.began[requestID]; !known {
		t.began[requestID] = time.Now()
	}
}

// done ends a removal and answers when it began.
func (t *teardowns) done(requestID string) time.Time {
	t.mu.Lock()
	began := t.began[requestID]
	delete(t.waits, requestID)
	delete(t.began, requestID)
	t.mu.Unlock()

	t.tell()

	return began
}

// counts are the removals that wait: for what passes, and for a person.
func (t *teardowns) counts() (later, mend int) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, w := range t.waits {
		if w.mend {
			mend++
		} else {
			later++
		}
	}

	return later, mend
}

// tell puts on the board what does not end by itself, or not soon.
func (t *teardowns) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()

	var (
		ids  []string
		mend string
	)

	for id, w := range t.waits {
		switch {
		case time.Since(w.tried) > quietTeardown:
			delete(t.waits, id)
			delete(t.began, id)
		case w.mend:
			ids = append(ids, id)
			mend = "mend"
		case time.Since(w.since) > longTeardown:
			ids = append(ids, id)
		}
	}

	if len(ids) == 0 {
		t.board.OK(SubjectRemovals)

		return
	}

	// What a person must mend is told before what only takes long.
	slices.SortFunc(ids, func(a, b string) int { return t.waits[a].before(t.waits[b], a, b) })

	first := t.waits[ids[0]]
	text := fmt.Sprintf("%s is not yet removed: %s", ids[0], first.reason)

	if more := len(ids) - 1; more > 0 {
		text = fmt.Sprintf("%s and %d more are not yet removed: %s", ids[0], more, first.reason)
	}

	t.board.Note(SubjectRemovals, "waiting"+mend, text)
}

// before orders teardowns for people.
func (w teardown) before(other teardown, id, otherID string) int {
	switch {
	case w.mend != other.mend && w.mend:
		return -1
	case w.mend != other.mend:
		return 1
	case !w.since.Equal(other.since):
		return w.since.Compare(other.since)
	case id < otherID:
		return -1
	default:
		return 1
	}
}
