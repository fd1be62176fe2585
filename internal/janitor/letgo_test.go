package janitor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

func (w *world) stuck(id string) {
	w.omni.requests[id] = &janitor.Request{ID: id, Project: "talos", TearingDown: true, Held: true}
}

// Invariant: a finalizer is removed only from a request that is tearing down and
// has had neither status nor state for the whole grace.
func TestAStuckFinalizerIsRemoved(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(1)
		w.stuck("stuck")
		w.stuck("waits-for-its-node")
		w.omni.statuses["waits-for-its-node"] = true
		w.stuck("being-removed")
		w.omni.states["being-removed"] = plan("being-removed")
		w.stuck("comes-and-goes")

		stop := w.run()
		w.pass(grace - time.Second)
		w.untouched("before the grace")

		w.mu.Lock()
		w.omni.statuses["comes-and-goes"] = true
		w.mu.Unlock()
		w.pass(time.Minute)

		w.mu.Lock()
		delete(w.omni.statuses, "comes-and-goes")
		w.mu.Unlock()
		w.pass(grace - time.Minute)

		if got := w.changes(); !slices.Equal(got, []string{"omni release stuck"}) {
			t.Errorf("done: %q", got)
		}

		w.pass(5 * time.Minute)
		stop()

		if got := w.changes(); len(got) != 2 || got[1] != "omni release comes-and-goes" {
			t.Errorf("done: %q", got)
		}
	})
}

// Invariant: gone is proved. While any project can not be read, or the silo is
// another one, a finalizer stays.
func TestAFinalizerStaysWithoutProof(t *testing.T) {
	t.Parallel()

	for what, hide := range map[string]func(w *world){
		"a project that can not be read": func(w *world) {
			w.rack.projects["other"] = "other"
			w.fails["rack list disks"] = classErr(2)
		},
		"another silo": func(w *world) { w.rack.silo = "55555555-5555-4555-8555-555555555555" },
		"a project that the token does not see": func(w *world) {
			w.rack.hideList = true
			w.omni.requests["stuck"].Project = "elsewhere"
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, w *world) {
				w.lives(1)
				w.stuck("stuck")
				hide(w)
				w.runFor(5 * grace)
				w.untouched(what)

				if n := w.logged("not yet done: removing the finalizer"); n != 1 {
					t.Errorf("told %d times", n)
				}
			})
		})
	}
}

// Invariant: a request whose state was lost in teardown is let go only when
// everything that bears its mark is gone, which is removed for it.
func TestWhatADeadRequestLeftIsRemovedFirst(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(3)
		w.stuck("stuck")
		w.machine("stuck")
		w.runFor(3 * grace)

		if w.omni.requests["stuck"] != nil || w.rack.bears(naming.RequestKey("stuck")) {
			t.Errorf("left; done: %q", w.changes())
		}

		if got := w.changes(); got[len(got)-1] != "omni release stuck" {
			t.Errorf("done: %q", got)
		}
	})
}

// Invariant: a dangling state is destroyed after all that was made by it is
// gone, and after the request was read by its ID as not there.
func TestADanglingStateEndsAfterItsMachine(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(3)
		w.machine("gone")
		w.omni.states["gone"] = plan("gone")
		w.omni.states["planless"] = janitor.State{ID: "planless", Spec: &specs.InstanceSpec{}}
		w.omni.statuses["bare"], w.omni.patches["bare"] = true, true

		w.runFor(3 * grace)

		if len(w.omni.states) != 3 || w.rack.bears(naming.RequestKey("gone")) || w.omni.statuses["bare"] || w.omni.patches["bare"] {
			t.Errorf("states %v, done %q", w.omni.states, w.changes())
		}

		at := slices.Index(w.ops, "omni destroy state gone")
		if at < 1 || w.ops[at-1] != "omni read request gone" {
			t.Errorf("calls before the end: %q", w.ops[max(0, at-3):at])
		}
	})
}

// Invariant: a state of another version, provider, owner or silo is not ours to
// end, nor is anything of its machine.
func TestAStateThatIsNotOursHoldsEverything(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(3)
		w.machine("held")

		held := plan("held")
		held.Held = "a newer version planned it"
		owner, silo := plan("owner"), plan("silo")
		owner.Spec.Plan.Owner = strings.Repeat("z", 26)
		silo.Spec.Plan.SiloId = "66666666-6666-4666-8666-666666666666"

		for _, s := range []janitor.State{held, owner, silo} {
			w.omni.states[s.ID] = s
		}

		w.stuck("published")
		w.omni.states["published"] = janitor.State{ID: "published", Held: "the published provider made it"}

		w.runFor(5 * grace)
		w.untouched("states that are not ours")

		if n := w.logged("not yet done: destroying the state"); n != 3 {
			t.Errorf("told %d times", n)
		}
	})
}

// Invariant: with many orphans at once nothing is removed and health says so; a
// finalizer whose request has nothing in the rack ends all the same.
func TestTheBrake(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		live, gone int
		on         bool
	}{{0, 1, true}, {0, 5, true}, {1, 2, false}, {1, 3, true}, {27, 3, false}, {26, 3, true}, {40, 4, false}, {40, 5, true}} {
		t.Run(fmt.Sprintf("%d live %d gone", tt.live, tt.gone), func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, w *world) {
				w.lives(tt.live)

				for i := range tt.gone {
					id := fmt.Sprintf("gone-%d", i)
					w.machine(id)
					w.omni.states[id] = plan(id)
				}

				stop := w.run()
				w.pass(3 * grace)

				if brake := w.brake; (brake != "") != tt.on {
					t.Errorf("the brake says %q", brake)
				}

				stop()

				left := len(w.rack.instances) - tt.live
				if tt.on {
					w.untouched("with the brake on")
				} else if left != 0 || len(w.rack.disks) != 2*tt.live || len(w.omni.states) != tt.live {
					t.Errorf("%d instances are left, done %q", left, w.changes())
				}
			})
		})
	}
}

// Invariant: a request that Omni lists while all others ended as they should is
// no reason for the brake, however often a look falls between its two lists.
func TestAnEndBetweenTheListsIsNoReasonForTheBrake(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.live("last")

		stop := w.run()
		w.pass(5*time.Minute + time.Second)

		w.mu.Lock()
		w.before["omni list requests"] = func() {
			clear(w.rack.instances)
			clear(w.rack.disks)
			clear(w.omni.requests)
			clear(w.omni.states)
			clear(w.omni.statuses)
			clear(w.omni.patches)
			w.omni.machines = nil
		}
		w.mu.Unlock()

		w.pass(3 * grace)

		if w.brake != "" {
			t.Errorf("the brake says %q", w.brake)
		}

		stop()
		w.untouched("an ordinary end")
	})
}

// Invariant: a restart at any instant is harmless. A janitor that is killed
// before or after any of its calls leaves nothing wrong, and the next one ends
// what is to be ended.
func TestAKillBetweenAnyTwoCallsIsHarmless(t *testing.T) {
	t.Parallel()

	points := 0

	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			reached := false

			bubble(t, func(t *testing.T, w *world) {
				w.lives(2)
				kept := w.rack.everything()

				i := w.machine("gone")
				w.rack.addAddress("address", w.mark("gone", naming.KindIP).String(), i.Id)
				w.omni.states["gone"] = plan("gone")
				w.stuck("stuck")
				w.machine("stuck")
				w.stuck("bare")

				quick := func(c *janitor.Config) { c.Grace, c.Settle = time.Minute, time.Minute }

				// The calls of the looks before anything is due are all alike.
				w.dieAt, w.dieAfter = n+36, after
				w.runFor(4*time.Minute, quick)

				reached = w.dead
				w.dieAt = 0
				w.runFor(4*time.Minute, quick)

				if got := w.rack.everything(); !slices.Equal(got, kept) {
					t.Errorf("killed at call %d: left %v", n, w.rack.names())
				}

				if len(w.omni.requests) != 2 || len(w.omni.states) != 2 {
					t.Errorf("killed at call %d: requests %d, states %d", n, len(w.omni.requests), len(w.omni.states))
				}
			})

			if !reached || t.Failed() {
				break
			}

			points++
		}
	}

	if points < 200 {
		t.Errorf("only %d kill points", points)
	}

	t.Logf("%d kill points", points)
}
