package rack

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The limits of calls at once, where the configuration has none. Bulk writes are
// bound by the uploads.
const (
	DefaultCalls   = 16
	DefaultChanges = 8
)

const (
	// crowded is how long a call waits for others to end.
	crowded = 20 * time.Second
	// strikesOut is how many calls in a row the rack must answer as overloaded or
	// under maintenance, without saying for how long, before it is left alone: one
	// may be about one object.
	strikesOut = 3
	// The pauses that follow, each twice the one before.
	firstPause, longestPause = 2 * time.Second, time.Minute
	// longestAsked bounds what the rack may ask for.
	longestAsked = 10 * time.Minute
	// tryTime is how long the call that tries for all is waited for.
	tryTime = 5 * time.Second
)

// pace bounds the calls to the rack at once, and leaves it alone for as long as it
// asks for. All clients that were made from one share it.
type pace struct {
	calls, changes chan struct{}

	mu      sync.Mutex
	strikes int
	pause   time.Duration
	until   time.Time
	why     *Error
	// struckAt is when the rack last asked for a pause, or was given one.
	struckAt time.Time
}

func newPace(calls, changes int) *pace {
	if calls <= 0 {
		calls = DefaultCalls
	}

	if changes <= 0 {
		changes = DefaultChanges
	}

	return &pace{calls: make(chan struct{}, calls), changes: make(chan struct{}, changes)}
}

// enter waits for a place for a call, and answers how to leave it.
func (p *pace) enter(ctx context.Context, op string, changes bool) (leave func(), err error) {
	if err := p.calm(op); err != nil {
		return nil, err
	}

	places := []chan struct{}{p.calls}
	if changes {
		// The narrow one first: who waits for it takes nothing from reads.
		places = []chan struct{}{p.changes, p.calls}
	}

	late := time.NewTimer(crowded)
	defer late.Stop()

	for i, place := range places {
		var err error

		select {
		case place <- struct{}{}:
			continue
		case <-ctx.Done():
			err = wrap(ctx, op, context.Cause(ctx))
		case <-late.C:
			err = fenced(op, errCrowded)
		}

		for _, taken := range places[:i] {
			<-taken
		}

		return nil, err
	}

	return func() {
		for _, taken := range places {
			<-taken
		}
	}, nil
}

var errCrowded = errors.New("waiting for other calls to the rack to end (RACK_CALLS, RACK_CHANGES)")

// calm refuses a call while the rack is to be left alone, in the words that the rack
// had for the last one. The first call after that tries for all.
func (p *pace) calm(op string) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	now := time.Now()
	if p.until.IsZero() {
		return nil
	}

	if left := p.until.Sub(now); left > 0 {
		return &Error{Op: op, Class: ClassFenced, Status: p.why.Status, Message: p.why.Message, RequestID: p.why.RequestID, After: left}
	}

	p.until = now.Add(tryTime)

	return nil
}

// answered notes what the rack made of a call that began then.
func (p *pace) answered(began time.Time, err error) {
	e, failed := errors.AsType[*Error](err)

	p.mu.Lock()
	defer p.mu.Unlock()

	switch {
	case !failed:
	case e.Class == ClassLost || e.Class == ClassFenced:
		return
	case e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable:
		p.struck(e)

		return
	}

	// A call that began before the pause says nothing of what is now.
	if began.After(p.struckAt) {
		p.strikes, p.pause, p.until = 0, 0, time.Time{}
	}
}

func (p *pace) struck(e *Error) {
	p.strikes++

	pause := e.After

	switch {
	case pause > 0:
		pause += time.Duration(rand.Int64N(int64(pause)/10 + 1)) //nolint:gosec // spreading load is no secret
	case p.strikes < strikesOut:
		return
	default:
		p.pause = min(max(2*p.pause, firstPause), longestPause)
		pause = p.pause - p.pause/4 + time.Duration(rand.Int64N(int64(p.pause)/2)) //nolint:gosec // as above
	}

	if until := time.Now().Add(pause); until.After(p.until) {
		p.until, p.struckAt, p.why = until, time.Now(), e
	}
}

// retryAfter is what an answer asks for, in either form; zero without.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}

	d := time.Duration(0)

	if seconds, err := strconv.ParseUint(text, 10, 16); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}

	return min(max(d, 0), longestAsked)
}

// After is how long the rack is to be left alone, as far as an error says so.
func After(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.After
	}

	return 0
}
