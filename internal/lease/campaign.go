package lease

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// slowest bounds the pause between two looks of a standby that can not get at the
// record until a person has mended something.
const slowest = time.Minute

// sight is what a standby has seen of the record.
type sight struct {
	version string
	created time.Time
	holder  string
	term    uint64
	number  uint64
	// since is from when on the record has been like this, by our own clock.
	since time.Time
	// last is the last look that was answered, failed whether one since was not.
	last   time.Time
	failed bool
}

// campaign stands by until this process has the lease, and answers false if ctx
// ends before.
func (k *Keeper) campaign(ctx context.Context) bool {
	pause := k.cfg.look()

	for ctx.Err() == nil {
		took, err := k.try(ctx)
		if ctx.Err() != nil && !took {
			break
		}

		k.cfg.Told(k.Role(), err)

		switch {
		case took:
			return true
		case err == nil:
			pause = k.cfg.look()
		default:
			k.seen.failed = true
			pause = min(2*pause, k.slowest(err))
		}

		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}

	return false
}

func (k *Keeper) slowest(err error) time.Duration {
	if k.cfg.Mend(err) {
		return max(slowest, k.cfg.Renew)
	}

	return k.cfg.Renew
}

// try looks at the record and takes it if it may.
func (k *Keeper) try(ctx context.Context) (took bool, err error) {
	r, err := k.read(ctx)
	if err != nil {
		return false, err
	}

	if r == nil {
		return k.begin(ctx)
	}

	k.see(r)

	if !k.mine(r) && !r.free() && time.Since(k.seen.since) < r.patience(k.cfg.Duration) {
		k.standBy(r)

		return false, nil
	}

	return k.take(ctx, r)
}

// take writes this process into a record that was read.
func (k *Keeper) take(ctx context.Context, r *Resource) (bool, error) {
	before, term, began := r.holder(), r.Lease().GetTerm()+1, time.Now()
	k.wrote = true

	done, err := k.update(ctx, k.over(r, k.id, k.cfg.Host, term))
	if err != nil || !done {
		return false, err
	}

	k.hold(term, began, before)

	return true, nil
}

// begin makes the record. One that is missing although the provider was used may
// have been removed under a holder, so it is made as held by somebody unknown,
// and taken like any other when it has not changed for its duration.
func (k *Keeper) begin(ctx context.Context) (bool, error) {
	unused, err := k.cfg.Unused(ctx)
	if err != nil {
		return false, err
	}

	if !unused {
		_, err = k.create(ctx, k.fresh(unknownHolder, "", 0))

		return false, err
	}

	began := time.Now()
	k.wrote = true

	made, err := k.create(ctx, k.fresh(k.id, k.cfg.Host, 1))
	if err != nil || !made {
		return false, err
	}

	k.hold(1, began, "")

	return true, nil
}

// hold begins a tenure.
func (k *Keeper) hold(term uint64, began time.Time, before string) {
	k.term, k.served, k.seen = term, true, sight{}

	k.mu.Lock()
	k.until = began.Add(k.cfg.Stop)
	k.role = Role{Holding: true, Term: term, Holder: k.cfg.Host}
	close(k.taken)
	k.taken = make(chan struct{})
	k.mu.Unlock()

	k.cfg.Log.Info("holding the lease: this replica works for the provider", zap.Uint64("term", term), zap.String("before", before))
}

// standBy notes who holds the lease. The role is told once, the holder when it
// changes nothing for this process is not.
func (k *Keeper) standBy(r *Resource) {
	role := Role{Term: r.Lease().GetTerm(), Holder: r.holder()}

	k.mu.Lock()
	first := k.role == Role{}
	k.role = role
	k.mu.Unlock()

	if first {
		k.cfg.Log.Info("standing by: another replica works for the provider", zap.String("holder", role.Holder), zap.Uint64("term", role.Term))
	}
}

// see notes how the record looks.
func (k *Keeper) see(r *Resource) {
	now := time.Now()
	l := r.Lease()

	if k.served && !k.mine(r) {
		k.served = false
		k.cfg.Deposed()
	}

	looks := sight{
		version: r.md.Version().String(), created: r.md.Created(), holder: l.GetHolder(), term: l.GetTerm(), number: l.GetSequence(),
		since: now, last: now,
	}

	if before := k.seen; before.same(looks) {
		looks.since = before.since

		// While Omni was away the holder could not renew. It gets its time to do so
		// first: work that is under way goes on best where it is.
		if before.failed {
			looks.since = looks.since.Add(now.Sub(before.last))
		}
	}

	k.seen = looks
}

func (s sight) same(other sight) bool {
	return s.version == other.version && s.created.Equal(other.created) && s.holder == other.holder && s.term == other.term && s.number == other.number
}
