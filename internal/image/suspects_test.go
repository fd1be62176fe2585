package image_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// saw lists a project and tells the manager, as the janitor does.
func saw(t *testing.T, w *world, m *image.Manager) {
	t.Helper()

	disks, err := w.rack.ListDisks(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}

	snapshots, err := w.rack.ListSnapshots(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}

	m.Saw(project, disks, snapshots)
}

// Invariant: a scratch disk that the rack makes after the record of its run was
// forgotten is removed all the same, but not before it was without a record for
// the whole grace; then its project is no longer listed.
func TestScratchThatComesAfterItsRunWasForgottenIsRemoved(t *testing.T) {
	t.Parallel()

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		m, stop := w.start(t, "0a1b2c3d", nil)

		time.Sleep(10 * time.Minute)
		w.leave("oipo-scratch-abcdefghij-00000001", oxide.DiskStateStateImportingFromBulkWrites, nil)
		time.Sleep(10 * time.Minute)

		if len(w.rack.left()) != 1 {
			t.Fatal("it was found without anybody having seen it")
		}

		saw(t, w, m)

		start := time.Now()
		settle(t, w, 10*time.Minute)

		if took := time.Since(start); took < 2*time.Minute {
			t.Errorf("touched after %s", took)
		}

		time.Sleep(5 * time.Minute)

		before := w.count("list disks")

		time.Sleep(time.Hour)

		if n := w.count("list disks"); n != before {
			t.Errorf("the project was listed %d times more", n-before)
		}

		stop()
	})
}

// Invariant: scratch of a living run, and what is not marked, make nothing
// happen however often it is seen.
func TestSeeingIsNoReasonToRemove(t *testing.T) {
	t.Parallel()

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		w.leave("oipo-scratch-abcdefghij-00000001", oxide.DiskStateStateImportReady, nil)
		w.rack.addDisk(project, "oipo-scratch-foreign", scratchMark(func(m *naming.Mark) { m.Provider = "oxide-2" }), oxide.DiskStateStateDetached)

		other := w.omni.of(deadRun)
		m, stop := w.start(t, "0a1b2c3d", nil)

		for range 60 {
			if err := other.Renew(t.Context(), []string{project}, nil); err != nil {
				t.Fatal(err)
			}

			saw(t, w, m)
			time.Sleep(time.Minute)
		}

		if len(w.rack.left()) != 2 {
			t.Errorf("left %v, calls %v", w.rack.left(), w.all())
		}

		stop()
	})
}
