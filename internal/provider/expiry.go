package provider

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/credentials"
)

const (
	// expiryEvery is how often it is looked at when the credentials expire.
	expiryEvery = time.Hour
	// expirySoon is how long after a failed look, or after the start, the next one is.
	expirySoon = 10 * time.Second
)

// watchExpiry warns ahead of credentials that expire. It also learns which silo
// the daemon serves, by which a new token is judged.
func (d *Daemon) watchExpiry(ctx context.Context) {
	next := time.Duration(0)

	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}

		next = expiryEvery
		if !d.tellExpiry(ctx) {
			next = expirySoon
			if d.silo.Load() != nil {
				next = expiryEvery / 4
			}
		}
	}
}

// tellExpiry tells what is known, and whether all of it could be found out.
func (d *Daemon) tellExpiry(ctx context.Context) bool {
	d.warn(noteKeyExpiry, "the service account key for Omni", d.keys.expiry(),
		"renew it with `omnictl infraprovider renewkey`, the daemon takes the new one from its file")

	if silo, err := readSilo(ctx, d.opts.Rack); err != nil {
		return false
	} else if d.silo.Load() == nil {
		d.silo.CompareAndSwap(nil, &silo)
	}

	const renew = "make a new one, the daemon takes it from its file"

	if access := d.token.Load(); access != nil && !access.Expires.IsZero() {
		d.warn(noteTokenExpiry, "the token for the rack", access.Expires, renew)

		return true
	}

	all, err := d.opts.Rack.ListTokenExpiries(ctx)
	if err != nil {
		return false
	}

	what, expires := whichToken(all)
	d.warn(noteTokenExpiry, what, expires, renew)

	return true
}

// whichToken is the first token of the user to expire. The rack does not tell by
// which of them it is asked, so with several it is only likely.
func whichToken(expiries []time.Time) (what string, expires time.Time) {
	ending := slices.DeleteFunc(slices.Clone(expiries), time.Time.IsZero)
	if len(ending) == 0 {
		return "", time.Time{}
	}

	expires = slices.MinFunc(ending, time.Time.Compare)
	if len(expiries) == 1 {
		return "the token for the rack", expires
	}

	return fmt.Sprintf("one of the %d tokens of the daemon's user at the rack, perhaps the daemon's,", len(expiries)), expires
}

func (d *Daemon) warn(subject, what string, expires time.Time, renew string) {
	key, text := credentials.Warning(what, expires, time.Now(), renew)
	if key == "" {
		d.opts.Board.OK(subject)
	} else {
		d.opts.Board.Note(subject, key, text)
	}
}
