package watcher

import (
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

func restarting(m *Machine) { m.Restart = true }

// Invariant: a machine is started again only if its class asks for it, with ever
// longer pauses, and only while it is stopped or failed.
func TestAMachineIsStartedAgainOnlyIfItsClassAsks(t *testing.T) {
	t.Parallel()

	for _, s := range []oxide.InstanceState{oxide.InstanceStateStopped, oxide.InstanceStateFailed} {
		watch(t, func(w *world) {
			w.add("a", restarting)
			w.add("b")
			w.state("a", s)
			w.state("b", s)
			w.pass(90 * time.Second)

			if got := strings.Join(w.started, " "); got != "i-a" || w.w.Counts().Starts != 1 {
				t.Fatalf("started %q, %+v", got, w.w.Counts())
			}

			// It does not come up: once a minute would be hot.
			w.pass(4 * time.Hour)

			if n := len(w.started); n < 8 || n > 14 {
				t.Errorf("%d starts in four hours", n)
			}

			w.state("a", oxide.InstanceStateRunning)
			w.pass(time.Minute * 2)

			before := len(w.started)
			w.pass(2 * time.Hour)

			if len(w.started) != before {
				t.Error("a running machine was started")
			}

			// It has been well for long, so the next time is a first one, with the
			// shortest pause before the second.
			w.state("a", s)
			w.pass(90 * time.Second)

			if n := len(w.started) - before; n < 1 || n > 2 {
				t.Errorf("%d starts at once", n)
			}
		})
	}
}

func TestAStartThatFailsIsToldOnce(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		w.startErr = &rack.Error{Class: rack.ClassCapacity, Message: "no sled has room"}
		w.add("a", restarting)
		w.state("a", oxide.InstanceStateStopped)
		w.pass(2 * time.Hour)

		n := 0

		for _, e := range w.logs.All() {
			if strings.Contains(e.Message, "no sled has room") {
				n++
			}
		}

		if n != 1 || w.w.Counts().StartErrors < 4 {
			t.Errorf("told %d times, %+v", n, w.w.Counts())
		}
	})
}

// Invariant: nothing foreign is touched, and nothing that Omni no longer wants is
// started.
func TestWhatIsForeignOrUnwantedIsNotStarted(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		w.add("foreign", restarting)
		w.add("unwanted", restarting)
		w.do(func() {
			w.instances["i-foreign"].Description = "somebody's"
			w.unwanted["unwanted"] = true
		})
		w.state("foreign", oxide.InstanceStateStopped)
		w.state("unwanted", oxide.InstanceStateStopped)
		w.pass(time.Hour)

		if len(w.started) != 0 {
			t.Errorf("started %v", w.started)
		}
	})
}

func TestFewMachinesAreStartedInOneRound(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		for _, id := range strings.Split("abcdefghij", "") {
			w.add(id, restarting)
			w.state(id, oxide.InstanceStateFailed)
		}

		w.pass(80 * time.Second)

		if len(w.started) != startsInRound {
			t.Errorf("%d starts in the first round", len(w.started))
		}

		w.pass(4 * time.Minute)

		all := map[string]bool{}
		for _, id := range w.started {
			all[id] = true
		}

		if len(all) != 10 {
			t.Errorf("of ten machines %d were started", len(all))
		}
	})
}
