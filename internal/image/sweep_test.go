package image_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Invariant: scratch of a run that is renewed is never touched, and is a
// leftover once it has not been renewed for the grace by our own clock.
func TestScratchOfALivingRunIsLeftAlone(t *testing.T) {
	t.Parallel()

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		w.leave("oipo-scratch-abcdefghij-00000001", oxide.DiskStateStateImportReady, nil)

		other := w.omni.of(deadRun)
		if err := other.Renew(t.Context(), []string{project}, nil); err != nil {
			t.Fatal(err)
		}

		_, stop := w.start(t, "0a1b2c3d", nil)

		for range 60 {
			time.Sleep(90 * time.Second)

			if err := other.Renew(t.Context(), []string{project}, nil); err != nil {
				t.Fatal(err)
			}
		}

		if len(w.rack.left()) != 1 || w.count("list disks") != 0 {
			t.Errorf("left %v, calls %v", w.rack.left(), w.all())
		}

		start := time.Now()
		settle(t, w, 5*time.Minute)

		if took := time.Since(start); took < time.Minute {
			t.Errorf("touched after %s", took)
		}

		stop()
	})
}

// Invariant: nothing is undone that is not marked, wholly and exactly, as
// scratch of this owner, this provider and a dead run.
func TestWhatIsForeignIsLeftAlone(t *testing.T) {
	t.Parallel()

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		marks := map[string]string{
			"owner":    scratchMark(func(m *naming.Mark) { m.Owner = strings.Repeat("z", 26) }),
			"provider": scratchMark(func(m *naming.Mark) { m.Provider = "oxide-2" }),
			"kind":     scratchMark(func(m *naming.Mark) { m.Kind = naming.KindData }),
			"none":     "an upload of mine",
			"broken":   scratchMark(nil) + " ",
		}

		for name, description := range marks {
			d := w.rack.addDisk(project, "oipo-scratch-"+name, description, oxide.DiskStateStateDetached)
			w.rack.addSnapshot(d, "oipo-snapshot-"+name, "of mine", time.Now())
		}

		// Somebody's own snapshot of our leftover, and ours of it.
		d := w.leave("oipo-scratch-abcdefghij-00000001", oxide.DiskStateStateDetached, func(id string) string {
			return image.New(image.Config{Owner: owner, Provider: "oxide"}).SnapshotName(id, 1)
		})
		w.rack.addSnapshot(d, "forensics", "of mine", time.Now())
		w.record(deadRun, project)

		_, stop := w.start(t, "0a1b2c3d", nil)
		time.Sleep(time.Hour)
		stop()

		if left := w.rack.left(); len(left) != 2*len(marks)+1 {
			t.Errorf("left %v", left)
		}

		if _, ok := w.omni.records()[deadRun]; ok {
			t.Error("the dead run is not forgotten")
		}
	})
}

// Invariant: without complete lists nothing is undone and no run forgotten.
func TestCompleteListsOrNothing(t *testing.T) {
	t.Parallel()

	for _, op := range []string{"list disks", "list snapshots"} {
		w := newWorld()
		w.rack.faults[op] = times(1, 20, errOf(rack.ClassInternal, 500))

		synctest.Test(t, func(t *testing.T) {
			w.leave("oipo-scratch-abcdefghij-00000001", oxide.DiskStateStateDetached, nil)
			w.record(deadRun, project)

			_, stop := w.start(t, "0a1b2c3d", nil)
			time.Sleep(15 * time.Minute)

			if _, ok := w.omni.records()[deadRun]; !ok || len(w.rack.left()) != 1 {
				t.Errorf("left %v, calls %v", w.rack.left(), w.all())
			}

			settle(t, w, 15*time.Minute)
			time.Sleep(2 * time.Minute)
			stop()

			if len(w.omni.records()) != 0 {
				t.Error("records are left")
			}
		})
	}
}

// Invariant: scratch of a run without any record is a leftover too, and so is
// a snapshot of ours whose disk somebody has deleted.
func TestLeftoversWithoutARecord(t *testing.T) {
	t.Parallel()

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		names := image.New(image.Config{Owner: owner, Provider: "oxide"}).SnapshotName

		w.rack.addDisk(project, "oipo-scratch-abcdefghij-00000002",
			scratchMark(func(m *naming.Mark) { m.Run = "00000bad" }), oxide.DiskStateStateImportingFromBulkWrites)

		gone := w.leave("oipo-scratch-abcdefghij-00000003", oxide.DiskStateStateDetached, func(id string) string { return names(id, 3) })
		delete(w.rack.disks, gone.Id)

		w.leave("oipo-scratch-abcdefghij-00000001", oxide.DiskStateStateFaulted, nil)
		w.record(deadRun, project)

		_, stop := w.start(t, "0a1b2c3d", nil)
		settle(t, w, 15*time.Minute)
		time.Sleep(2 * time.Minute)
		stop()

		if len(w.omni.records()) != 0 {
			t.Error("records are left")
		}
	})
}

// Invariant: an image that a dead run's late call has made in the project,
// while the silo has the same one, is removed. One that is in use, that only
// the project has, or that is not ours or of a living run, stays.
func TestAnImageThatTheSiloHasTooIsRemoved(t *testing.T) {
	t.Parallel()

	const living = "11111111"

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		silo := w.rack.addImage("", "in-the-silo", imageMark(nil), 1<<30, nil)
		late := w.rack.addImage(project, "late", imageMark(nil), 1<<30, nil)
		used := w.rack.addImage(project, "used", imageMark(nil), 1<<30, nil)
		w.rack.addDisk(project, "boot", "A disk.", oxide.DiskStateStateAttached).ImageId = used.Id

		stay := []string{silo.Id, used.Id}

		for name, change := range map[string]func(*naming.Mark){
			"owner":    func(m *naming.Mark) { m.Owner = strings.Repeat("z", 26) },
			"provider": func(m *naming.Mark) { m.Provider = "oxide-2" },
			"run":      func(m *naming.Mark) { m.Run = living },
			"identity": func(m *naming.Mark) { m.Image = new(*m.Image); m.Image.SecureBoot = true },
		} {
			stay = append(stay, w.rack.addImage(project, name, imageMark(change), 1<<30, nil).Id)
		}

		other := w.omni.of(living)
		w.record(deadRun, project)

		_, stop := w.start(t, "0a1b2c3d", nil)

		for range 30 {
			if err := other.Renew(t.Context(), []string{project}, nil); err != nil {
				t.Fatal(err)
			}

			time.Sleep(30 * time.Second)
		}

		stop()

		if w.rack.images[late.Id] != nil {
			t.Error("the late image is left")
		}

		for _, id := range stay {
			if w.rack.images[id] == nil {
				t.Errorf("image %s is gone", id)
			}
		}

		if _, ok := w.omni.records()[deadRun]; ok {
			t.Error("the dead run is not forgotten")
		}
	})
}

// Invariant: a clean process at rest does not list the rack.
func TestAtRestTheRackIsLeftAlone(t *testing.T) {
	t.Parallel()

	w := newWorld()
	test(t, w, func(t *testing.T, m *image.Manager) {
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)
		time.Sleep(5 * time.Minute)

		before := w.count("list disks")

		time.Sleep(24 * time.Hour)

		if n := w.count("list disks") - before; n != 0 {
			t.Errorf("%d lists in a day", n)
		}
	})
}

// The form of these names is stored: a snapshot that an earlier release has
// made is known by it.
func TestSnapshotNamesAreStable(t *testing.T) {
	t.Parallel()

	m := image.New(image.Config{Owner: owner, Provider: "oxide"})
	if got := m.SnapshotName("7a0c1f6e-0000-4000-8000-000000000009", 2); got != "oipo-snapshot-bd319912dd6538668969952b295afc63-2" || !naming.Legal(got) {
		t.Error(got)
	}
}
