package instance

import (
	"errors"
	"fmt"
	"time"
)

// Wait is what a phase returns when there is nothing to do but look again
// later. It is no failure.
type Wait struct {
	// Reason is one line for people: what is awaited, and why. Empty when the
	// wait is only there to have the state stored.
	Reason string
	// After is when to look again.
	After time.Duration
	// First is before all others whose time has come: a place that is held while
	// hundreds of others are looked at is lost.
	First bool
	// Cause is the error that made the wait necessary, if one did.
	Cause error
}

// Error is the reason.
func (w *Wait) Error() string { return w.Reason }

// Unwrap leads to the cause.
func (w *Wait) Unwrap() error { return w.Cause }

// storeNow has the state written before the next side effect.
func storeNow() error { return &Wait{First: true} }

func waitFor(after time.Duration, format string, args ...any) error {
	return &Wait{Reason: fmt.Sprintf(format, args...), After: after}
}

// AsWait tells a wait from a failure.
func AsWait(err error) (*Wait, bool) { return errors.AsType[*Wait](err) }

func isWait(err error) bool {
	_, ok := AsWait(err)

	return ok
}

// Mend is a failure that only a person can mend; trying again at once is of no
// use.
type Mend struct {
	// Reason is one line for people: what is wrong and what to do.
	Reason string
	// Cause is the error behind it, if there is one.
	Cause error
}

// Error is the reason.
func (m *Mend) Error() string { return m.Reason }

// Unwrap leads to the cause.
func (m *Mend) Unwrap() error { return m.Cause }

func mend(cause error, format string, args ...any) error {
	return &Mend{Reason: fmt.Sprintf(format, args...), Cause: cause}
}

var (
	// ErrImageGone says that the image of the plan is no longer in the rack.
	ErrImageGone = errors.New("the image has vanished from the rack")
	// ErrVanished says that the instance is proven gone although it was made.
	ErrVanished = errors.New("the instance has vanished from the rack")
)
