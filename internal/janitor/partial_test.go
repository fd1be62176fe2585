package janitor_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// another is a second project, of which nothing is known but that it is there.
const another = "33333333-3333-4333-8333-333333333333"

// Invariant: an Omni that lists nothing is not believed while instances exist,
// and a project that can not be read may hold some.
func TestAnOmniThatListsNothingIsNotBelievedInTheDark(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.rack.projects[another], w.rack.blind[another] = "dark", classErr(rack.ClassForbidden)
		w.rack.addDisk(naming.Disk("data0", "gone"), w.mark("gone", naming.KindData).String(), "")

		stop := w.run()
		w.pass(3 * grace)
		w.untouched("an Omni that lists nothing and a project that can not be read")

		if !strings.Contains(w.brake, `"dark" can not be read`) {
			t.Errorf("the brake says %q", w.brake)
		}

		w.mu.Lock()
		delete(w.rack.blind, another)
		w.mu.Unlock()
		w.pass(2 * grace)
		stop()

		if len(w.rack.disks) != 0 {
			t.Errorf("left after the project could be read: %v", w.rack.names())
		}
	})
}

// What a person has deleted is gone, whatever the rack says of other projects.
func TestADeletionByHandEndsBesideAProjectThatCanNotBeRead(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(3)
		w.machine("gone")
		w.rack.projects[another], w.rack.blind[another] = "dark", classErr(rack.ClassInternal)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()

		hand := janitor.New(w.config())

		found, err := hand.Find(ctx)
		if err != nil || len(found.Orphans) != 3 {
			t.Fatalf("found %+v, %v", found, err)
		}

		if removed, err := hand.Delete(ctx, found, 0); removed != 3 || err != nil {
			t.Errorf("removed %d: %v", removed, err)
		}
	})
}

// A deletion that the rack refuses for days is made again and again, and logged
// once.
func TestARemovalThatFailsForDaysIsLoggedOnce(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(3)
		w.rack.addDisk(naming.Disk("data0", "gone"), w.mark("gone", naming.KindData).String(), "")
		w.fails["rack delete disk"] = classErr(rack.ClassInternal)

		w.runFor(24 * time.Hour)

		if n := w.logged("removing an orphan"); n != 1 {
			t.Errorf("logged %d times for %d tries", n, len(w.changes()))
		}

		if n := w.logged("an orphan is still there"); n < 1 || n > 2 {
			t.Errorf("the reason is logged %d times", n)
		}
	})
}

// Omni holds the status of a request that is gone until its node has left its
// cluster, which may be never: that is told once, and is not called done.
func TestWhatOmniStillHoldsIsNotCalledDone(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(3)
		w.omni.statuses["bare"], w.omni.holds["bare"] = true, true

		stop := w.run()
		w.pass(24 * time.Hour)

		// One of the two is part of the other.
		if all, not := w.logged("done: "), w.logged("not yet done: "); all != 1 || not != 1 {
			t.Errorf("done %d times, not yet %d times", all-not, not)
		}

		w.mu.Lock()
		delete(w.omni.holds, "bare")
		w.mu.Unlock()
		synctest.Wait()
		w.pass(5 * time.Minute)
		stop()

		if w.logged("done: ") != 2 || w.omni.statuses["bare"] {
			t.Error("not done when Omni has let go")
		}
	})
}
