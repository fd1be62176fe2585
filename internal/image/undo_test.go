package image_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const deadRun = "deadbeef"

func scratchMark(change func(*naming.Mark)) string {
	m := naming.Mark{Owner: owner, Provider: "oxide", Kind: naming.KindScratch, Key: identity().Key(), Run: deadRun}
	if change != nil {
		change(&m)
	}

	return m.Describe("Upload in progress.")
}

// leave puts a scratch disk of a dead run into the rack, in a state, with a
// snapshot if there can be one.
func (w *world) leave(name string, state oxide.DiskStateState, snapshotName func(string) string) *fakeDisk {
	d := w.rack.addDisk(project, name, scratchMark(nil), state)
	if snapshotName != nil {
		w.rack.addSnapshot(d, snapshotName(d.Id), "snapshot of finalized disk "+name, time.Now())
	}

	return d
}

func (w *world) record(run string, projects ...string) {
	w.omni.mu.Lock()
	defer w.omni.mu.Unlock()

	w.omni.runs[run] = image.RunInfo{ID: run, Sequence: 7, ProjectIDs: projects}
}

// Invariant: a half-done import is undone from whatever state its disk is in.
func TestUndoFromEachState(t *testing.T) {
	t.Parallel()

	for _, state := range []oxide.DiskStateState{
		oxide.DiskStateStateCreating, oxide.DiskStateStateImportReady, oxide.DiskStateStateImportingFromBulkWrites,
		oxide.DiskStateStateFinalizing, oxide.DiskStateStateDetached, oxide.DiskStateStateFaulted,
		oxide.DiskStateStateMaintenance,
	} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()

			w := newWorld()

			synctest.Test(t, func(t *testing.T) {
				m := image.New(image.Config{Owner: owner, Provider: "oxide"})

				var names func(string) string
				if state == oxide.DiskStateStateDetached || state == oxide.DiskStateStateFaulted {
					names = func(id string) string { return m.SnapshotName(id, 1) }
				}

				d := w.leave("oipo-scratch-abcdefghij-00000001", state, names)
				if state == oxide.DiskStateStateFinalizing {
					d.detachAt, d.snapshot = time.Now().Add(4*time.Minute), m.SnapshotName(d.Id, 2)
				}

				w.record(deadRun, project)

				_, stop := w.start(t, "0a1b2c3d", nil)
				time.Sleep(3 * time.Minute)

				w.rack.set(func() {
					if d.state == oxide.DiskStateStateCreating {
						d.state = oxide.DiskStateStateImportReady
					}

					if d.state == oxide.DiskStateStateMaintenance {
						d.state = oxide.DiskStateStateDetached
					}
				})

				settle(t, w, 5*time.Minute)
				time.Sleep(2 * time.Minute)

				if _, ok := w.omni.records()[deadRun]; ok {
					t.Error("the dead run is not forgotten")
				}

				stop()
			})
		})
	}
}

// Invariant: a disk that a failed deletion has renamed is deleted by its ID.
func TestADeletionThatComesBack(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["delete disk"] = func(n int) (bool, error) {
		if n > 3 {
			return true, nil
		}

		for _, d := range w.rack.disks {
			d.Name, d.state = oxide.Name("deleted-"+d.Id), oxide.DiskStateStateFaulted
		}

		return false, errOf(rack.ClassInternal, 500)
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)
		settle(t, w, 5*time.Minute)
	})
}

// Invariant: a deletion that says 500 and is done counts as done.
func TestADeletionThatIsDoneAllTheSame(t *testing.T) {
	t.Parallel()

	w := newWorld()
	for _, op := range []string{"delete disk", "delete snapshot"} {
		w.rack.faults[op] = func(n int) (bool, error) {
			if n == 1 {
				return true, errOf(rack.ClassInternal, 500)
			}

			return true, nil
		}
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)
		settle(t, w, 5*time.Minute)
		time.Sleep(time.Minute)
	})
}

// Invariant: a disk that somebody has attached is left alone until it is free.
func TestAScratchDiskInUseIsLeftAlone(t *testing.T) {
	t.Parallel()

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		d := w.leave("oipo-scratch-abcdefghij-00000001", oxide.DiskStateStateMaintenance, nil)
		w.record(deadRun, project)

		_, stop := w.start(t, "0a1b2c3d", nil)
		time.Sleep(time.Hour)

		if w.count("delete disk")+w.count("stop")+w.count("finalize") != 0 {
			t.Errorf("calls %v", w.all())
		}

		w.rack.set(func() { d.state = oxide.DiskStateStateDetached })
		settle(t, w, 5*time.Minute)
		stop()
	})
}
