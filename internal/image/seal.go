package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	sealTries = 4
	// settleDisk bounds the wait for a disk to leave finalizing: the rack copies
	// nothing, but its import service may hang during an update.
	settleDisk = 15 * time.Minute
	// settleSnapshot bounds the wait for the snapshot once the disk is detached.
	settleSnapshot = 2 * time.Minute
	firstPoll      = 500 * time.Millisecond
	maxPoll        = 5 * time.Second
)

// seal finalizes the disk into a snapshot and answers the snapshot's ID when
// it is ready. A finalize that the rack took back leaves the data on the disk,
// and is repeated with another name: the first one may be taken by then.
func (i *importer) seal(ctx context.Context, h head) (string, error) {
	s := i.scratch
	delay := firstStepPause

	for try := 1; ; try++ {
		s.snapshots = append(s.snapshots, i.m.snapshotName(s.id, len(s.snapshots)+1))

		err := i.m.cfg.Rack.FinalizeImport(ctx, s.id, s.snapshots[len(s.snapshots)-1])
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}

		if err != nil && !repeatable(rack.ClassOf(err)) {
			return "", needs(err, h.size)
		}

		if err == nil && try == 1 {
			if id := i.readyAtOnce(ctx); id != "" {
				return id, nil
			}
		}

		state, settleErr := i.settled(ctx)

		switch {
		case settleErr != nil && err != nil:
			return "", fmt.Errorf("%w, after %w", settleErr, err)
		case settleErr != nil:
			return "", settleErr
		}

		if state == oxide.DiskStateStateDetached {
			return i.snapshot(ctx, try == 1 && err == nil)
		}

		if err := sealAgain(state, try, err); err != nil {
			return "", err
		}

		if err := pause(ctx, delay); err != nil {
			return "", err
		}

		delay = min(2*delay, maxStepPause)
	}
}

// sealAgain says whether finalizing may be tried once more: with nil, or why not.
// err is what the last try, the try'th, ended with.
func sealAgain(state oxide.DiskStateState, try int, err error) error {
	switch {
	case state != oxide.DiskStateStateImportReady:
		return fmt.Errorf("the scratch disk is %s after finalizing", state)
	case try < sealTries:
		return nil
	case err == nil:
		return fmt.Errorf("the rack took finalizing back %d times", sealTries)
	default:
		return err
	}
}

// readyAtOnce is the ID of the snapshot if the first finalize has made it by the
// time of its answer, as the rack nearly always does; else empty. The disk is not
// looked at: should it be on its way still, its deletion is refused and the undo
// goes by its state.
func (i *importer) readyAtOnce(ctx context.Context) string {
	s := i.scratch

	snap, err := i.m.cfg.Rack.ViewSnapshotByName(ctx, s.project, s.snapshots[0])
	if err != nil || snap.DiskId != s.id || snap.State != oxide.SnapshotStateReady {
		return ""
	}

	s.detached, s.snapshotID = true, snap.Id

	return snap.Id
}

// repeatable tells the failures of finalize after which the disk's state
// decides. A full quota stays full for as long as the disk is kept.
func repeatable(c rack.Class) bool {
	switch c {
	case rack.ClassOK, rack.ClassExists, rack.ClassInvalid, rack.ClassConflict, rack.ClassBusy,
		rack.ClassInternal, rack.ClassLost, rack.ClassFenced:
		return true
	case rack.ClassGone, rack.ClassCredentials, rack.ClassForbidden, rack.ClassCapacity, rack.ClassVersion:
	}

	return false
}

// settled waits until the disk is in a state that it does not leave by itself.
func (i *importer) settled(ctx context.Context) (oxide.DiskStateState, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleDisk, errors.New("the scratch disk stays finalizing"))
	defer cancel()

	for delay := firstPoll; ; delay = min(2*delay, maxPoll) {
		disk, err := i.m.cfg.Rack.ViewDisk(ctx, i.scratch.id)

		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil && !rack.ClassOf(err).Passing():
			return "", err
		case err != nil:
		case !moving(disk.State.State()):
			return disk.State.State(), nil
		}

		if err := pause(ctx, delay); err != nil {
			return "", err
		}
	}
}

// moving tells the states that a disk leaves by itself.
func moving(s oxide.DiskStateState) bool {
	return s == oxide.DiskStateStateCreating || s == oxide.DiskStateStateFinalizing ||
		s == oxide.DiskStateStateMaintenance
}

// snapshot waits for the snapshot that one of the finalize calls made. The
// rack may show it later than the disk's state.
func (i *importer) snapshot(ctx context.Context, only bool) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, settleSnapshot, errors.New("the snapshot of the scratch disk does not get ready"))
	defer cancel()

	s := i.scratch

	for delay := firstPoll; ; delay = min(2*delay, maxPoll) {
		for n := len(s.snapshots) - 1; n >= 0; n-- {
			snap, err := i.m.cfg.Rack.ViewSnapshotByName(ctx, s.project, s.snapshots[n])

			switch {
			case ctx.Err() != nil:
				return "", context.Cause(ctx)
			case rack.ClassOf(err) == rack.ClassGone, err != nil && rack.ClassOf(err).Passing():
				continue
			case err != nil:
				return "", err
			case snap.DiskId != s.id:
				return "", fmt.Errorf("snapshot %s: %w", snap.Id, errForeign)
			case snap.State == oxide.SnapshotStateReady:
				// No call on the disk is open, so its undo need not look first.
				s.detached = only

				if only {
					s.snapshotID = snap.Id
				}

				return snap.Id, nil
			case snap.State == oxide.SnapshotStateFaulted:
				return "", errors.New("the rack could not make the snapshot of the scratch disk")
			}
		}

		if err := pause(ctx, delay); err != nil {
			return "", err
		}
	}
}
