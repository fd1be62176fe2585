package image

import (
	"context"
	"fmt"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// maxSweepEvery is the time between two rounds, less for a short grace.
const maxSweepEvery = time.Minute

// sweep finds scratch that nobody works with any more: that of runs whose
// record has not changed for the grace by our own clock, or that have none,
// and our own that is neither imported through nor being undone. It survives
// from one round to the next.
type sweep struct {
	m       *Manager
	seen    map[string]sighting
	failing map[string]bool // projects, and "" for the whole round
}

// sighting is since when something has looked the same.
type sighting struct {
	sequence uint64
	recorded bool
	since    time.Time
	round    time.Time // when it was last looked at
}

// remains is what one round leaves in the rack.
type remains struct {
	runs   map[string]bool // that still have scratch somewhere
	listed map[string]bool // projects whose lists were complete
	orphan map[string]bool // projects with scratch of no known run
	dirty  map[string]bool // projects with scratch of any run
}

func (m *Manager) sweepLoop(ctx context.Context) {
	s := &sweep{m: m, seen: map[string]sighting{}, failing: map[string]bool{}}

	round := func() {
		err := s.round(ctx, time.Now())
		if ctx.Err() == nil {
			s.note("", err)
		}
	}

	round()
	every(ctx, min(maxSweepEvery, m.cfg.Grace/2), round)
}

// round looks once.
func (s *sweep) round(ctx context.Context, now time.Time) error {
	others, err := s.m.cfg.Runs.Others(ctx)
	if err != nil {
		return fmt.Errorf("listing the runs: %w", err)
	}

	own, err := s.m.recorded(ctx)
	if err != nil {
		return err
	}

	projects := map[string]bool{}
	for _, p := range own {
		projects[p] = true
	}

	dead := map[string]RunInfo{}

	for _, r := range others {
		if !s.stale(r.ID, sighting{sequence: r.Sequence, recorded: true}, now) {
			continue
		}

		dead[r.ID] = r

		for _, p := range r.ProjectIDs {
			projects[p] = true
		}
	}

	for _, p := range s.m.suspects.all() {
		projects[p] = true
	}

	left := remains{runs: map[string]bool{}, listed: map[string]bool{}, orphan: map[string]bool{}, dirty: map[string]bool{}}

	for _, p := range sorted(projects) {
		err := s.project(ctx, p, now, left)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		s.note(p, err)
	}

	s.tidy(ctx, own, dead, left)

	for k, v := range s.seen {
		if !v.round.Equal(now) {
			delete(s.seen, k)
		}
	}

	return nil
}

// note logs when looking begins to fail and when it works again, for a rack
// may be away for an hour.
func (s *sweep) note(projectID string, err error) {
	if s.failing[projectID] == (err != nil) {
		return
	}

	if err == nil {
		delete(s.failing, projectID)
		s.m.cfg.Log.Info("leftovers of uploads are looked for again", zap.String("oxide.project.id", projectID))

		return
	}

	s.failing[projectID] = true
	s.m.cfg.Log.Info("leftovers of uploads can not be looked for",
		zap.String("oxide.project.id", projectID), zap.Error(err))
}

// stale notes how something looks in this round, and tells whether it has
// looked so for the grace.
func (s *sweep) stale(id string, looks sighting, now time.Time) bool {
	before, ok := s.seen[id]
	if !ok || before.sequence != looks.sequence || before.recorded != looks.recorded {
		before = sighting{sequence: looks.sequence, recorded: looks.recorded, since: now}
	}

	before.round = now
	s.seen[id] = before

	return now.Sub(before.since) >= s.m.cfg.Grace
}

// dead tells whether the run of a mark is no longer alive. A run that this
// round has not seen among the others has no record: it was forgotten while a
// call of it was still under way in the rack.
func (s *sweep) dead(run string, now time.Time) bool {
	if seen, ok := s.seen[run]; ok && seen.round.Equal(now) && seen.recorded {
		return now.Sub(seen.since) >= s.m.cfg.Grace
	}

	return s.stale(run, sighting{}, now)
}

// project undoes the leftovers in one project, by complete lists.
func (s *sweep) project(ctx context.Context, projectID string, now time.Time, left remains) error {
	disks, err := s.m.cfg.Rack.ListDisks(ctx, projectID)
	if err != nil {
		return err
	}

	snapshots, err := s.m.cfg.Rack.ListSnapshots(ctx, projectID)
	if err != nil {
		return err
	}

	left.listed[projectID] = true

	byDisk := map[string][]string{}

	for _, snap := range snapshots {
		if s.m.ownSnapshot(&snap) {
			byDisk[snap.DiskId] = append(byDisk[snap.DiskId], string(snap.Name))
		}
	}

	for _, d := range disks {
		names := byDisk[d.Id]
		delete(byDisk, d.Id)

		if mark, ok := s.m.mark(d.Description, naming.KindScratch); ok {
			left.runs[mark.Run], left.dirty[projectID] = true, true
			s.disk(projectID, d, mark.Run, names, now) //nolint:contextcheck // the undo outlives the round
		}
	}

	for diskID, names := range byDisk {
		left.orphan[projectID], left.dirty[projectID] = true, true
		s.orphans(projectID, diskID, names, now) //nolint:contextcheck // the undo outlives the round
	}

	// Last, so that an image which can not be deleted holds no scratch up; the
	// record of its run stays as long as that is not known.
	if err := s.superseded(ctx, projectID, disks, now, left); err != nil {
		delete(left.listed, projectID)

		return err
	}

	return nil
}

// disk undoes a scratch disk if nobody works with it.
func (s *sweep) disk(projectID string, d oxide.Disk, run string, snapshots []string, now time.Time) {
	if s.m.held(d.Id, string(d.Name)) || run != s.m.cfg.Run && !s.dead(run, now) {
		return
	}

	s.m.cfg.Log.Info("removing what an upload has left behind", zap.String("oxide.disk.id", d.Id),
		zap.String("oxide.disk.name", string(d.Name)), zap.String("run", run))

	s.undo(&scratch{project: projectID, name: string(d.Name), id: d.Id, snapshots: snapshots})
}

// orphans undoes snapshots whose disk somebody else has deleted. Their run is
// not known, so they have to be without a disk for the whole grace: between
// the two lists a living run may have made both.
func (s *sweep) orphans(projectID, diskID string, snapshots []string, now time.Time) {
	if s.m.held(diskID, "") || !s.stale("snapshots of "+diskID, sighting{}, now) {
		return
	}

	s.m.cfg.Log.Info("removing snapshots that an upload has left behind",
		zap.String("oxide.disk.id", diskID), zap.Strings("oxide.snapshot.names", snapshots))

	s.undo(&scratch{project: projectID, id: diskID, snapshots: snapshots})
}

func (s *sweep) undo(left *scratch) {
	s.m.hold(left)
	s.m.startUndo(left)
}

// tidy forgets runs that are dead and have nothing left, and takes clean
// projects from our own record.
func (s *sweep) tidy(ctx context.Context, own []string, dead map[string]RunInfo, left remains) {
	for _, p := range own {
		if left.listed[p] && !left.orphan[p] && !left.runs[s.m.cfg.Run] {
			if err := s.m.dropProject(ctx, p); err != nil {
				return
			}
		}
	}

	s.m.suspects.clear(left.listed, left.dirty)

	for id, r := range dead {
		clean := !left.runs[id]
		for _, p := range r.ProjectIDs {
			clean = clean && left.listed[p] && !left.orphan[p]
		}

		if !clean {
			continue
		}

		if err := s.m.cfg.Runs.Forget(ctx, id); err != nil {
			s.m.cfg.Log.Info("the record of an ended run could not be removed", zap.String("run", id), zap.Error(err))
		}
	}
}
