package watcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Invariant: a machine that stopped, failed or vanished after it was provisioned
// is logged once with its IDs, counted, in health, and no longer so once it is
// well again. Nothing is done to it.
func TestAMachineThatIsNotAsItShouldBeIsTold(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		happens func(w *world)
		ends    func(w *world)
		words   string
		count   func(Counts) int
	}{
		"stopped": {
			func(w *world) { w.state("a", oxide.InstanceStateStopped) }, func(w *world) { w.state("a", oxide.InstanceStateRunning) },
			"machines: stopped: a", func(c Counts) int { return c.Stopped },
		},
		"failed": {
			func(w *world) { w.state("a", oxide.InstanceStateFailed) }, func(w *world) { w.state("a", oxide.InstanceStateRunning) },
			"machines: failed: a", func(c Counts) int { return c.Failed },
		},
		"vanished": {
			func(w *world) { w.do(func() { delete(w.instances, "i-a") }) }, func(w *world) { w.do(func() { delete(w.machines, "a") }) },
			"machines: vanished from the rack: a", func(c Counts) int { return c.Vanished },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			watch(t, func(w *world) {
				w.add("a")
				w.add("b")
				w.pass(5 * time.Minute)

				if w.health() != "" || w.logs.Len() != 0 || w.w.Counts().Watched != 2 {
					t.Fatalf("while all is well: %q, %d lines, %+v", w.health(), w.logs.Len(), w.w.Counts())
				}

				c.happens(w)
				w.pass(10 * time.Minute)

				if w.health() != c.words || !w.board.Ready() || c.count(w.w.Counts()) != 1 {
					t.Errorf("health %q, ready %v, %+v", w.health(), w.board.Ready(), w.w.Counts())
				}

				if got := w.lines(); got != "warn "+name+" a" {
					t.Errorf("logged %q", got)
				}

				c.ends(w)
				w.pass(10 * time.Minute)

				if got := w.lines(); w.health() != "" || got != "warn "+name+" a|info "+name+" a" || c.count(w.w.Counts()) != 0 {
					t.Errorf("after it: health %q, logged %q, %+v", w.health(), got, w.w.Counts())
				}

				if len(w.started) != 0 {
					t.Errorf("started %v", w.started)
				}
			})
		})
	}
}

func TestAMachineThatNeverJoinedIsToldAfterItsTime(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		w.add("a", func(m *Machine) { m.Joined = false })
		w.pass(joinTime - 2*time.Minute)

		if w.health() != "" {
			t.Errorf("before its time: %q", w.health())
		}

		w.pass(5 * time.Minute)

		if got := w.lines(); w.health() != "machines: not joined Omni: a" || got != "warn unjoined a" || w.w.Counts().Unjoined != 1 {
			t.Errorf("health %q, logged %q, %+v", w.health(), got, w.w.Counts())
		}

		w.do(func() { m := w.machines["a"]; m.Joined = true; w.machines["a"] = m })
		w.pass(2 * time.Minute)

		if w.health() != "" {
			t.Errorf("after the join: %q", w.health())
		}
	})
}

// Invariant: watching costs one list for each project and round, and one look at
// Omni, however many machines there are.
func TestWatchingCostsOneListForEachProject(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		for i := range 500 {
			w.add(fmt.Sprint(i), func(m *Machine) { m.ProjectID = "p" + fmt.Sprint(i%2) })
		}

		w.pass(time.Hour)

		if w.lists < 100 || w.lists > 140 || w.omniLists > 70 {
			t.Errorf("%d lists of the rack and %d looks at Omni in an hour", w.lists, w.omniLists)
		}

		w.do(func() { w.machines = map[string]Machine{} })
		w.pass(2 * time.Minute)

		before := w.lists
		w.pass(time.Hour)

		if w.lists != before {
			t.Error("the rack is asked although there is nothing to watch")
		}
	})
}

// A teardown that begins while the rack is asked stops its machine rightly.
func TestAMachineThatIsBeingRemovedIsNoFinding(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		w.add("a")
		w.pass(2 * time.Minute)
		w.state("a", oxide.InstanceStateStopped)
		w.do(func() { w.afterList = func() { delete(w.machines, "a") } })
		w.pass(5 * time.Minute)

		if got := w.lines(); got != "" || w.health() != "" {
			t.Errorf("logged %q, health %q", got, w.health())
		}
	})
}

// A machine that was provisioned after the rack was asked is not in its answer.
func TestAMachineYoungerThanTheListHasNotVanished(t *testing.T) {
	t.Parallel()

	now := time.Now()

	if k := judge(Machine{RunningSince: now.Add(time.Second), Joined: true}, nil, now, joinTime); k != "" {
		t.Errorf("found %q", k)
	}

	if k := judge(Machine{RunningSince: now.Add(-time.Second), Joined: true}, nil, now, joinTime); k != vanished {
		t.Errorf("found %q", k)
	}
}

// Invariant: absence is proved, never assumed. What can not be read has not
// vanished; health says which project, and that the token may lack a role.
func TestAProjectThatCanNotBeReadHidesItsMachines(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		w.add("a")
		w.add("b", func(m *Machine) { m.ProjectID, m.ProjectName = "q", "other" })
		w.state("a", oxide.InstanceStateStopped)
		w.pass(3 * time.Minute)
		w.do(func() { w.errs["p"] = &rack.Error{Class: rack.ClassGone, Message: `not found: project with id "p"`} })
		w.pass(10 * time.Minute)

		const want = `machines: stopped: a; projects: project "demo" with 1 machines can not be read: it was deleted, ` +
			`or the daemon's token lost its role there: not found: project with id "p"`
		if w.health() != want || w.w.Counts().Unreadable != 1 || w.w.Counts().Vanished != 0 {
			t.Errorf("health %q, %+v", w.health(), w.w.Counts())
		}

		w.do(func() { delete(w.errs, "p") })
		w.state("a", oxide.InstanceStateRunning)
		w.pass(3 * time.Minute)

		if w.health() != "" {
			t.Errorf("afterwards %q", w.health())
		}
	})
}

// A rack or an Omni that is away changes no finding and is asked ever less.
func TestTroubleIsBackedOffFromAndChangesNothing(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		w.add("a")
		w.state("a", oxide.InstanceStateStopped)
		w.pass(3 * time.Minute)
		w.do(func() { w.errs["p"] = errLost })

		before := w.lists
		w.pass(2 * time.Hour)

		if n := w.lists - before; n > 20 {
			t.Errorf("%d lists in two hours of a rack that is away", n)
		}

		w.do(func() { delete(w.errs, "p"); w.omniErr = errOmni })
		w.pass(time.Hour)

		if got := w.lines(); got != "warn stopped a" || w.health() != "machines: stopped: a" {
			t.Errorf("logged %q, health %q", got, w.health())
		}

		w.do(func() { w.omniErr = nil })
		w.state("a", oxide.InstanceStateRunning)
		w.pass(2 * roundAtMost)

		if w.health() != "" {
			t.Errorf("it does not heal: %q", w.health())
		}
	})
}

func TestARackThatWasSwitchedOffIsNotAThousandLines(t *testing.T) {
	t.Parallel()

	watch(t, func(w *world) {
		for i := range 300 {
			w.add(fmt.Sprintf("m-%03d", i))
			w.state(fmt.Sprintf("m-%03d", i), oxide.InstanceStateStopped)
		}

		w.pass(5 * time.Minute)

		if w.logs.Len() != lines+1 || w.health() != "machines: stopped: m-000, m-001, m-002 and 297 more" || w.w.Counts().Stopped != 300 {
			t.Errorf("%d lines, health %q", w.logs.Len(), w.health())
		}

		if last := w.logs.All()[lines].Message; !strings.HasPrefix(last, "280 more machines") {
			t.Errorf("the last line is %q", last)
		}
	})
}
