// Package lease lets one process at a time work for a provider ID. Any number of
// them may run: one holds the lease, the others stand by.
//
// The lease is a resource in Omni, the record, that all of them read and write
// with optimistic locking. The holder renews it; nobody compares clocks: each
// process times the record by its own monotonic clock.
//
//	standby ──the record is free, is our own, or has not changed for its duration──▶ taking
//	taking ──written on the version that was read──▶ holding
//	taking ──somebody else was faster, or no answer──▶ standby
//	holding ──renewed──▶ holding
//	holding ──not renewed for Stop, or the record is another's──▶ losing
//	holding ──the process is told to end──▶ ending, renewed all the while
//	losing ──the work has ended──▶ standby
//	ending ──the work has ended──▶ the record is written free
//
// Between the end of Stop, when the holder begins no call any more, and the end
// of Duration, when another may take the lease, calls in flight can end. A write
// without an answer is never guessed about: the next look tells, as each process
// has a random ID and each taking a new term.
package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"go.uber.org/zap"
)

// The bounds of a lease's duration. A record that says more is not believed.
const (
	MinDuration = time.Second
	MaxDuration = 10 * time.Minute
)

// The defaults.
const (
	DefaultDuration = 20 * time.Second
	DefaultRenew    = 5 * time.Second
	DefaultStop     = 12 * time.Second
)

// ErrNotHeld says that this process may not work for the provider now.
var ErrNotHeld = errors.New("another replica may work for this provider now, this one does not hold the lease")

// Store is Omni's state, by a client of the lease's own: whatever happens to the
// links of the work must not cost the lease.
type Store interface {
	Get(ctx context.Context, ptr resource.Pointer, opts ...state.GetOption) (resource.Resource, error)
	Create(ctx context.Context, res resource.Resource, opts ...state.CreateOption) error
	Update(ctx context.Context, res resource.Resource, opts ...state.UpdateOption) error
}

// Times are how long things take; Renew < Stop < Duration.
type Times struct {
	// Duration is for how long a record must not have changed before another
	// process takes it.
	Duration time.Duration
	// Renew is how often the holder renews the record.
	Renew time.Duration
	// Stop is how long after the last renewal the holder begins no call any more.
	Stop time.Duration
}

// Check says which of the times is wrong.
func (t Times) Check() error {
	switch {
	case t.Duration < MinDuration || t.Duration > MaxDuration:
		return fmt.Errorf("the lease's duration of %s is not one of %s to %s", t.Duration, MinDuration, MaxDuration)
	case t.Renew <= 0 || t.Renew >= t.Stop:
		return fmt.Errorf("renewing the lease every %s must be more often than stopping without a renewal after %s", t.Renew, t.Stop)
	case t.Stop >= t.Duration:
		return fmt.Errorf("stopping without a renewal after %s must come before others take the lease after %s", t.Stop, t.Duration)
	}

	return nil
}

// look is how often a standby looks at the record, and how soon a renewal that
// failed is tried again: a lease that was freed is taken within it.
func (t Times) look() time.Duration { return t.Renew / 5 }

// call bounds one call to Omni, so that one without an answer leaves time for
// another.
func (t Times) call() time.Duration { return (t.Stop - t.Renew) / 2 }

// Config says which lease, and what is told of it.
type Config struct {
	Store Store
	// Type and Namespace are those of the record.
	Type      resource.Type
	Namespace resource.Namespace
	// Host is where this process runs, for people.
	Host string

	Times

	// Unused says that nothing has ever worked for the provider. Only then a
	// missing record can not be one that somebody removed under a holder.
	Unused func(ctx context.Context) (bool, error)
	// Told gets the outcome of each look and write: nil, or why Omni did not do
	// it. Losing a race is none.
	Told func(role Role, err error)
	// Mend says of an error that it needs a person: a standby asks slowly then.
	Mend func(err error) bool
	// Deposed is called when the record shows that somebody else has held the
	// lease since this process did. It must not wait.
	Deposed func()

	Log *zap.Logger
}

// Role is what a process is at one moment.
type Role struct {
	// Holding says that this process works for the provider.
	Holding bool
	// Term is that of the record as last seen, Holder the host that it names,
	// empty for a lease that is free or was not seen yet.
	Term   uint64
	Holder string
}

// String is the role for people.
func (r Role) String() string {
	switch {
	case r.Holding:
		return fmt.Sprintf("holder of the lease, term %d", r.Term)
	case r.Holder == "":
		return "standby, nobody is known to hold the lease"
	default:
		return fmt.Sprintf("standby, %s holds the lease, term %d", r.Holder, r.Term)
	}
}

// newID is a process's ID.
func newID() string { return rand.Text() }
