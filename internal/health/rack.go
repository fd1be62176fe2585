package health

import (
	"context"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// NeedRack is the rack's condition on the board.
const NeedRack = "rack"

const (
	// probeWell is half of what the identity of the silo is believed for, so that
	// the probes tell of it and no machine has to ask.
	probeWell    = 30 * time.Second
	probeAtFirst = 2 * time.Second
	// probeAtMost bounds the pause between tries while the rack is not well.
	probeAtMost = 60 * time.Second
	// probeDeadline bounds one probe: a rack that hangs is not well either.
	probeDeadline = 10 * time.Second
)

// Rack is what the probe asks.
type Rack interface {
	Ping(ctx context.Context) error
	Me(ctx context.Context) (*oxide.CurrentUser, error)
	Host() string
}

// WatchRack keeps the rack's condition until ctx ends.
func (b *Board) WatchRack(ctx context.Context, r Rack) {
	pause, known := probeAtFirst, false

	for {
		next := probeWell

		if err := probe(ctx, r); err != nil && ctx.Err() == nil {
			key, text := rackTrouble(r.Host(), err, known)
			b.Trouble(NeedRack, key, text)

			next = pause
			pause = min(2*pause, probeAtMost)
		} else if err == nil {
			b.OK(NeedRack)

			pause, known = probeAtFirst, true
		}

		select {
		case <-ctx.Done():
			return
		case <-b.probe:
		case <-time.After(next):
		}
	}
}

// ProbeRack has WatchRack look at once: something has changed.
func (b *Board) ProbeRack() {
	select {
	case b.probe <- struct{}{}:
	default:
	}
}

func probe(ctx context.Context, r Rack) error {
	ctx, cancel := context.WithTimeout(ctx, probeDeadline)
	defer cancel()

	_, refused := r.Me(ctx)
	if refused == nil {
		return nil
	}

	// The ping needs no token: it tells an API that does not answer from a token
	// that is refused.
	if err := r.Ping(ctx); err != nil {
		return err
	}

	return refused
}

// rackTrouble says what is wrong with the rack, and whether that has been well
// before: an API that refuses connections is opened by the rack itself.
func rackTrouble(host string, err error, known bool) (key, text string) {
	class := rack.ClassOf(err)

	if rack.Refused(err) {
		if known {
			return "refused", "the rack's API does not answer any more at " + host + ": connection refused; it may be in an update, waiting for it"
		}

		return "refused", "the rack's API does not answer yet at " + host + ": connection refused; the rack is not up, or this is not its address, waiting for it"
	}

	switch class {
	case rack.ClassBusy, rack.ClassFenced:
		return rack.ClassBusy.String(), "the rack at " + host + " is overloaded or under maintenance: " + rack.Reason(err)
	case rack.ClassCredentials:
		return class.String(), "the rack at " + host + " refuses the token (OXIDE_TOKEN), renew it: " + rack.Reason(err)
	case rack.ClassInternal:
		return class.String(), "what answers at " + host + " is no Oxide API, or is not well: " + rack.Reason(err)
	case rack.ClassVersion:
		return class.String(), version.OxideAPI("the rack at "+host, rack.Reason(err))
	case rack.ClassLost:
		return class.String(), "the rack at " + host + " can not be reached: " + rack.Reason(err)
	default:
		return class.String(), "the rack at " + host + " is not well: " + rack.Reason(err)
	}
}
