package image

import (
	"context"
	"errors"
	"slices"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Stray is scratch of a run that has no record: nobody works with it. It has a
// disk, or is a number of snapshots of one that is gone.
type Stray struct {
	ProjectID string
	// DiskID is known always, Name only while there is a disk.
	DiskID, Name string
	Snapshots    []string
	// Run is the process that made it, empty without a disk.
	Run string
}

// Strays finds scratch of runs without a record in a project, by lists that are
// complete and older than that of the records: a run is recorded before it
// makes anything. It needs no time to pass, and so leaves alone what a record
// still speaks for; the sweep of a daemon decides about that.
func (m *Manager) Strays(projectID string, disks []oxide.Disk, snapshots []oxide.Snapshot, runs []RunInfo) []Stray {
	var (
		strays   []Stray
		byDisk   = map[string][]string{}
		recorded = slices.ContainsFunc(runs, func(r RunInfo) bool { return slices.Contains(r.ProjectIDs, projectID) })
	)

	for i := range snapshots {
		if m.ownSnapshot(&snapshots[i]) {
			byDisk[snapshots[i].DiskId] = append(byDisk[snapshots[i].DiskId], string(snapshots[i].Name))
		}
	}

	for _, d := range disks {
		names := byDisk[d.Id]
		delete(byDisk, d.Id)

		mark, ok := m.mark(d.Description, naming.KindScratch)
		if !ok || slices.ContainsFunc(runs, func(r RunInfo) bool { return r.ID == mark.Run }) {
			continue
		}

		strays = append(strays, Stray{ProjectID: projectID, DiskID: d.Id, Name: string(d.Name), Snapshots: names, Run: mark.Run})
	}

	for id, names := range byDisk {
		// Whose they are is not known without the disk.
		if !recorded && id != "" {
			strays = append(strays, Stray{ProjectID: projectID, DiskID: id, Snapshots: names})
		}
	}

	return strays
}

// RemoveStray removes a stray. It returns when nothing of it is left, or when
// ctx ends. The manager need not run.
func (m *Manager) RemoveStray(ctx context.Context, s Stray) error {
	left := &scratch{project: s.ProjectID, name: s.Name, id: s.DiskID, snapshots: s.Snapshots}
	delay := firstUndoPause

	for {
		v, err := m.undoStep(ctx, left)

		switch {
		case err == nil && v == undone:
			return nil
		case err == nil && v == again:
			continue
		case errors.Is(err, errForeign):
			return err
		}

		if paused := pause(ctx, delay); paused != nil {
			return errors.Join(err, paused)
		}

		delay = min(2*delay, maxUndoPause/4)
	}
}
