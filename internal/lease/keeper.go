package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Keeper takes, renews and frees the lease for one process. Its methods are safe
// for concurrent use, but for Run, which is called once.
type Keeper struct {
	cfg Config
	id  string

	mu    sync.Mutex
	role  Role
	until time.Time     // until when calls may begin; zero without the lease
	taken chan struct{} // closed when the lease is taken

	// Only Run's goroutine uses the rest.
	term   uint64 // of this process's last tenure
	seen   sight
	served bool // since the last look at a record of somebody else
	wrote  bool // itself into the record, perhaps
}

// errLost ends the context of a holder's work.
var errLost = errors.New("the lease is lost")

// New makes a keeper of a process that stands by.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, id: newID(), taken: make(chan struct{})}
}

// Check answers nil while this process may begin calls that change something.
func (k *Keeper) Check() error {
	k.mu.Lock()
	defer k.mu.Unlock()

	now := time.Now()

	// Without the monotonic clock as well, which stands still while a machine
	// sleeps. If a wall clock jumps ahead this is too strict until the next renewal.
	if now.Before(k.until) && now.Round(0).Before(k.until.Round(0)) {
		return nil
	}

	return ErrNotHeld
}

// Await returns when Check answers nil, or with the cause of ctx's end.
func (k *Keeper) Await(ctx context.Context) error {
	for {
		k.mu.Lock()
		taken := k.taken
		k.mu.Unlock()

		if k.Check() == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-taken:
		case <-time.After(k.cfg.Renew):
			// A clock that jumped does not close the channel.
		}
	}
}

// Role is what this process is now.
func (k *Keeper) Role() Role {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.role
}

// Run takes the lease whenever it can and calls hold for each time that it has
// it, with a context that ends when the lease is lost or ctx ends. It frees the
// lease when ctx has ended and hold has returned. An error of hold's own ends
// Run too.
func (k *Keeper) Run(ctx context.Context, hold func(ctx context.Context) error) error {
	for k.campaign(ctx) {
		err := k.tenure(ctx, hold)
		if errors.Is(err, errLost) {
			continue
		}

		k.release(ctx)

		return err
	}

	if k.wrote {
		// Not renewed in time, or without an answer; it may be this process's.
		k.release(ctx)
	}

	return nil
}

// tenure has hold work until the lease is lost or ctx ends, and renews the lease
// as long as the work goes on, also after ctx has ended.
func (k *Keeper) tenure(ctx context.Context, hold func(ctx context.Context) error) error {
	held, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	defer lose(nil)

	ended := context.AfterFunc(ctx, func() { lose(context.Cause(ctx)) })
	defer ended()

	done := make(chan error, 1)

	go func() { done <- hold(held) }()

	next := k.cfg.Renew

	for {
		left := time.Until(k.validUntil())
		if left <= 0 {
			return k.lost(lose, done, fmt.Sprintf("it could not be renewed for %s", k.cfg.Stop))
		}

		select {
		case err := <-done:
			return err
		case <-time.After(min(next, left)):
		}

		if next > left {
			continue
		}

		renewed, by, err := k.renew(held)
		k.cfg.Told(k.Role(), err)

		switch {
		case by != "":
			return k.lost(lose, done, by)
		case renewed:
			next = k.cfg.Renew
		default:
			next = k.cfg.look()
		}
	}
}

// lost ends the work and waits for it.
func (k *Keeper) lost(lose context.CancelCauseFunc, done <-chan error, why string) error {
	k.mu.Lock()
	k.until = time.Time{}
	k.role.Holding = false
	k.mu.Unlock()

	k.cfg.Log.Warn("lost the lease, standing by: "+why, zap.Uint64("term", k.term))
	lose(errLost)

	if err := <-done; err != nil && !errors.Is(err, errLost) {
		return err
	}

	return errLost
}

// renew looks and writes once while the lease is held. by says who or what has
// taken the lease away; renewed is false without it if somebody else wrote at the
// same moment, and the next look tells.
func (k *Keeper) renew(ctx context.Context) (renewed bool, by string, err error) {
	// The work's context may have ended while the work has not.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), k.validUntil())
	defer cancel()

	r, err := k.read(ctx)
	if err != nil {
		return false, "", err
	}

	began := time.Now()

	switch {
	case r == nil:
		// Somebody removed it. Nobody else takes a record that was missing before
		// its duration has passed, and not if this one is there first.
		renewed, err = k.create(ctx, k.fresh(k.id, k.cfg.Host, k.term))
	case k.mine(r) && r.Lease().GetTerm() == k.term:
		renewed, err = k.update(ctx, k.over(r, k.id, k.cfg.Host, k.term))
	case r.free():
		return false, "somebody freed it", nil
	default:
		return false, r.holder() + " has it", nil
	}

	if renewed {
		k.valid(began)
	}

	return renewed, "", err
}

// release writes the record free, if it is this process's.
func (k *Keeper) release(ctx context.Context) {
	k.mu.Lock()
	k.until = time.Time{}
	k.role.Holding = false
	k.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseDeadline)
	defer cancel()

	for {
		r, err := k.read(ctx)
		if err == nil && (r == nil || !k.mine(r)) {
			return
		}

		done := false
		if err == nil {
			done, err = k.update(ctx, k.over(r, "", "", r.Lease().GetTerm()))
		}

		if done {
			k.cfg.Log.Info("freed the lease", zap.Uint64("term", k.term))

			return
		}

		select {
		case <-ctx.Done():
			k.cfg.Log.Warn("the lease could not be freed, another replica takes it when it has run out",
				zap.Duration("duration", k.cfg.Duration), zap.Error(err))

			return
		case <-time.After(k.cfg.look()):
		}
	}
}

// releaseDeadline bounds freeing the lease at the end.
const releaseDeadline = 5 * time.Second

func (k *Keeper) mine(r *Resource) bool { return r.known() && r.Lease().GetHolder() == k.id }

// valid notes that the record was written by a call that began then.
func (k *Keeper) valid(began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.until = began.Add(k.cfg.Stop)
}

func (k *Keeper) validUntil() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.until
}
