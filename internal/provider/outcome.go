package provider

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/siderolabs/omni/client/pkg/infra/provision"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// waiting marks the requeue errors of ours: nothing is wrong, and the log need
// not say so each time.
type waiting struct{ reason string }

// Error is the reason that Omni shows.
func (w *waiting) Error() string { return w.reason }

// mending marks failures that the SDK has logged once already when the runtime
// logs them again.
type mending struct{ error }

// Unwrap leads to the failure.
func (m *mending) Unwrap() error { return m.error }

// minRequeue is the least interval handed to the SDK: it takes zero as "no
// requeue".
const minRequeue = 10 * time.Millisecond

// beforeOthers is the interval of who is to go on before all whose time has come:
// the SDK's queue is one of times.
const beforeOthers = -time.Minute

// outcome decides, in this one place, what an error means for the request:
// a wait with a reason, which goes on by itself, or a failure that a person
// must mend, which Omni shows as FAILED and the SDK tries again each minute.
func outcome(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}

	if w, ok := instance.AsWait(err); ok {
		if w.First {
			return wait(w.Reason, beforeOthers)
		}

		return wait(w.Reason, w.After)
	}

	if ctx.Err() != nil {
		return wait("the daemon is stopping", time.Second)
	}

	if _, ok := errors.AsType[*rack.Error](err); ok {
		return rackOutcome(err)
	}

	if _, ok := errors.AsType[*image.MendError](err); ok {
		return &mending{err}
	}

	if m, ok := errors.AsType[*instance.Mend](err); ok {
		return &mending{m}
	}

	return &mending{err}
}

func rackOutcome(err error) error {
	if after := rack.After(err); after > 0 {
		return wait(err.Error(), after+spread(5*time.Second))
	}

	switch class := rack.ClassOf(err); class {
	case rack.ClassCapacity:
		return wait(err.Error(), spread(30*time.Second))
	case rack.ClassConflict:
		return wait(err.Error(), spread(5*time.Second))
	case rack.ClassBusy, rack.ClassInternal, rack.ClassLost, rack.ClassFenced:
		return wait(err.Error(), spread(15*time.Second))
	case rack.ClassCredentials:
		return &mending{fmt.Errorf("the rack refuses the daemon's token (OXIDE_TOKEN), renew it: %w", err)}
	case rack.ClassForbidden:
		return &mending{fmt.Errorf("the daemon's token (OXIDE_TOKEN) lacks a role on the rack: %w", err)}
	case rack.ClassVersion:
		return &mending{errors.New(version.OxideAPI("the rack", rack.Reason(err)))}
	case rack.ClassOK, rack.ClassGone, rack.ClassExists, rack.ClassInvalid:
		return &mending{err}
	}

	return &mending{err}
}

// wait asks the SDK to come back, with a reason for the user if there is one.
func wait(reason string, after time.Duration) error {
	if after != beforeOthers {
		after = max(after, minRequeue)
	}

	if reason == "" {
		return provision.NewRetryInterval(after)
	}

	return provision.NewRetryError(&waiting{reason: reason}, after)
}

// spread keeps requests that failed together from coming back together.
func spread(d time.Duration) time.Duration {
	return d - d/4 + time.Duration(rand.Int64N(int64(d)/2)) //nolint:gosec // spreading load is no secret
}
