package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	firstUndoPause = time.Second
	maxUndoPause   = 2 * time.Minute
)

// verdict is what one step of an undo came to.
type verdict int

const (
	undone verdict = iota // nothing is left
	again                 // something was done; look at once
	wait                  // the rack has to do something first
)

// startUndo removes what an import has made, for as long as it takes. Nobody
// waits for it except Run.
func (m *Manager) startUndo(s *scratch) {
	m.mu.Lock()
	ctx, stopping := m.undoCtx, m.ctx.Done()
	m.mu.Unlock()

	m.undoing.Go(func() { m.undo(ctx, stopping, s) })
}

// undo takes one step after another until nothing is left. Once the manager
// stops it goes on only while that leads somewhere; the rest is held, so that
// this run's record stays and another process finds it.
func (m *Manager) undo(ctx context.Context, stopping <-chan struct{}, s *scratch) {
	log := m.cfg.Log.With(zap.String("oxide.disk.name", s.name), zap.String("oxide.project.id", s.project))
	delay := firstUndoPause

	for {
		v, err := m.undoStep(ctx, s)

		switch {
		case ctx.Err() != nil:
			log.Info("scratch of an upload is left to a later process", zap.String("oxide.disk.id", s.id))

			return
		case err == nil && v == undone:
			m.letGo(s)
			log.Debug("scratch of an upload is removed", zap.String("oxide.disk.id", s.id))

			return
		case err == nil && v == again:
			delay = firstUndoPause

			continue
		case err != nil && errors.Is(err, errForeign):
			m.letGo(s)
			log.Warn("scratch of an upload is no longer ours and stays", zap.Error(err))

			return
		case err != nil && ended(stopping):
			log.Info("scratch of an upload is left to a later process", zap.String("oxide.disk.id", s.id), zap.Error(err))

			return
		case err != nil:
			log.Warn("scratch of an upload could not be removed yet", zap.String("oxide.disk.id", s.id),
				zap.Error(err), zap.Duration("retry_in", delay))
		}

		if ended(stopping) {
			delay = firstUndoPause
		}

		waitAny(ctx, stopping, delay)

		delay = min(2*delay, maxUndoPause)
	}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitAny waits for the time, for the end of ctx, or for the moment in which
// stopping is closed.
func waitAny(ctx context.Context, stopping <-chan struct{}, d time.Duration) {
	if ended(stopping) {
		stopping = nil // that moment is past
	}

	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
	case <-stopping:
	case <-t.C:
	}
}

// undoStep does the one next thing that the disk's state asks for. The
// package comment draws the states.
func (m *Manager) undoStep(ctx context.Context, s *scratch) (verdict, error) {
	if s.id == "" {
		return m.undoNamed(ctx, s)
	}

	if s.detached {
		// Only if both go at once; after any surprise the state decides.
		s.detached = false

		return m.deleteAll(ctx, s)
	}

	disk, err := m.cfg.Rack.ViewDisk(ctx, s.id)
	if rack.ClassOf(err) == rack.ClassGone {
		return m.deleteSnapshots(ctx, s)
	}

	if err != nil {
		return wait, err
	}

	if !m.ours(disk.Description, naming.KindScratch) {
		return wait, fmt.Errorf("disk %s: %w", disk.Id, errForeign)
	}

	switch disk.State.State() {
	case oxide.DiskStateStateImportingFromBulkWrites:
		return again, m.cfg.Rack.StopBulkWrite(ctx, s.id)
	case oxide.DiskStateStateImportReady:
		return again, m.cfg.Rack.FinalizeImport(ctx, s.id, "")
	case oxide.DiskStateStateDetached, oxide.DiskStateStateFaulted:
		return m.deleteAll(ctx, s)
	case oxide.DiskStateStateCreating, oxide.DiskStateStateFinalizing, oxide.DiskStateStateMaintenance,
		oxide.DiskStateStateImportingFromUrl, oxide.DiskStateStateAttaching, oxide.DiskStateStateAttached,
		oxide.DiskStateStateDetaching, oxide.DiskStateStateDestroyed:
	}

	return wait, nil
}

// undoNamed looks for a disk whose create call had no clear answer.
func (m *Manager) undoNamed(ctx context.Context, s *scratch) (verdict, error) {
	disk, err := m.cfg.Rack.ViewDiskByName(ctx, s.project, s.name)

	switch {
	case rack.ClassOf(err) == rack.ClassGone && time.Now().Before(s.settled):
		return wait, nil
	case rack.ClassOf(err) == rack.ClassGone:
		return undone, nil
	case err != nil:
		return wait, err
	case !m.ours(disk.Description, naming.KindScratch):
		return wait, fmt.Errorf("disk %s: %w", disk.Id, errForeign)
	}

	m.setID(s, disk.Id)

	return again, nil
}

// deleteAll deletes the snapshots and then the disk, whose mark is what proves
// the snapshots ours.
func (m *Manager) deleteAll(ctx context.Context, s *scratch) (verdict, error) {
	if v, err := m.deleteSnapshots(ctx, s); v != undone || err != nil {
		return v, err
	}

	err := m.deleteSerially(ctx, func() error { return m.cfg.Rack.DeleteDisk(ctx, s.id) })
	if err == nil || rack.ClassOf(err) == rack.ClassGone {
		return undone, nil
	}

	return wait, err
}

// deleteSnapshots deletes whatever the finalize calls have made.
func (m *Manager) deleteSnapshots(ctx context.Context, s *scratch) (verdict, error) {
	if id := s.snapshotID; id != "" {
		s.snapshotID = ""

		if err := m.deleteSerially(ctx, func() error { return m.cfg.Rack.DeleteSnapshot(ctx, id) }); err == nil {
			return undone, nil
		}
	}

	for _, name := range s.snapshots {
		snap, err := m.cfg.Rack.ViewSnapshotByName(ctx, s.project, name)

		switch {
		case rack.ClassOf(err) == rack.ClassGone:
			continue
		case err != nil:
			return wait, err
		case !m.ownSnapshot(snap):
			continue
		case snap.State == oxide.SnapshotStateCreating:
			return wait, nil
		}

		err = m.deleteSerially(ctx, func() error { return m.cfg.Rack.DeleteSnapshot(ctx, snap.Id) })
		if err != nil && rack.ClassOf(err) != rack.ClassGone {
			return wait, err
		}
	}

	return undone, nil
}

// deleteSerially makes one deletion at a time: deletions side by side race in
// the rack and come back as faulted disks.
func (m *Manager) deleteSerially(ctx context.Context, f func() error) error {
	select {
	case m.deleting <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	defer func() { <-m.deleting }()

	return f()
}
