package watcher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	// startsInRound bounds the starts of one round: each blocks for as long as
	// the rack takes.
	startsInRound = 4
	// startPause is the first pause between two starts of a machine, doubled up
	// to startPauseMax: one that does not stay up is not started hot.
	startPause    = time.Minute
	startPauseMax = 30 * time.Minute
)

// restart remembers the starts of a machine. Losing it with the process only
// means one start sooner.
type restart struct {
	count int
	next  time.Time
	// last is the class of the last failure, for the log.
	last string
}

// startAgain starts machines that were found stopped or failed in this round, if
// their class asks for it.
func (w *Watcher) startAgain(ctx context.Context, now map[string]finding, seen view) {
	w.forgetStarts(now)

	began := 0

	// Who has waited longest goes first: one that never stays up holds no other up.
	waiting := slices.SortedFunc(maps.Keys(now), func(a, b string) int {
		return cmp.Or(w.starts[a].next.Compare(w.starts[b].next), cmp.Compare(a, b))
	})

	for _, id := range waiting {
		f := now[id]
		_, fresh := seen.asked[f.machine.ProjectID]

		if !fresh || !f.machine.Restart || f.kind != stopped && f.kind != failed || time.Now().Before(w.starts[id].next) {
			continue
		}

		if began == startsInRound || ctx.Err() != nil {
			return
		}

		began++

		w.start(ctx, f)
	}
}

// start starts one machine, if its instance is ours and Omni still wants it at
// this moment.
func (w *Watcher) start(ctx context.Context, f finding) {
	m, logger := f.machine, w.cfg.Logger.With(fields(f.machine, f.kind)...)

	if !w.cfg.Ours(f.description, m.RequestID) {
		w.startFailed(m.RequestID, logger, "foreign", errForeign)

		return
	}

	wanted, err := w.cfg.Omni.Wanted(ctx, m.RequestID)
	if err != nil || !wanted {
		return
	}

	err = w.cfg.Rack.StartInstance(ctx, m.InstanceID)
	if err != nil {
		// A process that may no longer act has not failed.
		if class := rack.ClassOf(err); ctx.Err() == nil && class != rack.ClassFenced {
			w.startFailed(m.RequestID, logger, class.String(), err)
		}

		return
	}

	w.again(m.RequestID, "")
	w.countStart(true)
	logger.Info("started the machine again, as its class asks")
}

var errForeign = errors.New("the instance does not bear our mark: it is left alone")

func (w *Watcher) startFailed(requestID string, logger *zap.Logger, class string, err error) {
	if w.starts[requestID].last != class {
		logger.Warn("starting the machine again: "+rack.Reason(err), zap.Error(err))
	}

	w.again(requestID, class)
	w.countStart(false)
}

func (w *Watcher) again(requestID, class string) {
	s := w.starts[requestID]
	pause := startPauseMax

	if s.count < 5 {
		pause = startPause << s.count
	}

	w.starts[requestID] = restart{count: s.count + 1, next: time.Now().Add(pause), last: class}
}

// forgetStarts forgets machines that have stayed up for long, or are no more.
func (w *Watcher) forgetStarts(now map[string]finding) {
	maps.DeleteFunc(w.starts, func(id string, s restart) bool {
		_, found := now[id]

		return !found && time.Since(s.next) > startPauseMax
	})
}

func (w *Watcher) countStart(ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.counts.Starts++

	if !ok {
		w.counts.StartErrors++
		w.cfg.Started("error")

		return
	}

	w.cfg.Started("ok")
}
