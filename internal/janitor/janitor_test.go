package janitor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Invariant: what bears our mark and whose request is gone is removed, stopped
// first, but not before it was so for the whole grace; each call that stops or
// deletes comes right after the request was looked for again.
func TestAnOrphanIsRemovedAfterTheGrace(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(3)
		kept := w.rack.everything()
		i := w.machine("gone-1")
		w.rack.addAddress("address", w.mark("gone-1", naming.KindIP).String(), i.Id)
		w.rack.addGroup("group", w.mark("gone-1", naming.KindGroup).String(), 0)

		w.runFor(grace - time.Second)
		w.untouched("before the grace")
		w.runFor(grace + 5*time.Minute)

		want := []string{
			"rack stop instance gone-1", "rack delete group group", "rack delete instance gone-1",
			"rack delete disk " + naming.Disk("boot", "gone-1"), "rack delete disk " + naming.Disk("data0", "gone-1"),
			"rack delete address address",
		}
		if got := w.changes(); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			t.Errorf("done: %q", got)
		}

		if got := w.rack.everything(); !slices.Equal(got, kept) {
			t.Errorf("left: %v", w.rack.names())
		}

		if n := w.logged("removing an orphan"); n != len(want) {
			t.Errorf("%d removals are logged", n)
		}

		checkReread(t, w)
	})
}

// checkReread: between any two changes of the rack the requests are listed, and
// a known request is read by its ID, or for a group all plans.
func checkReread(t *testing.T, w *world) {
	t.Helper()

	listed, read, plans := false, false, false

	for _, op := range w.ops {
		switch {
		case op == "omni list requests":
			listed = true
		case strings.HasPrefix(op, "omni read request gone-1"):
			read = true
		case op == "omni list states":
			plans = listed
		case strings.HasPrefix(op, "rack stop"), strings.HasPrefix(op, "rack delete"):
			if !listed || !read && (!plans || !strings.HasPrefix(op, "rack delete group")) {
				t.Errorf("%q without looking again", op)
			}

			listed, read, plans = false, false, false
		}
	}
}

// Invariant: nothing is an orphan that is not marked, wholly and exactly, by
// this owner, this provider and as what it is.
func TestWhatIsForeignIsNeverTouched(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, w *world) {
		w.lives(1)

		mark := w.mark("gone-1", naming.KindInstance)
		for name, description := range map[string]string{
			"none": "a machine of mine", "empty": "",
			"owner":    naming.Mark{Owner: strings.Repeat("z", 26), Provider: testProvider, Kind: mark.Kind, Key: mark.Key, Run: mark.Run}.String(),
			"provider": naming.Mark{Owner: testOwner, Provider: "oxide-2", Kind: mark.Kind, Key: mark.Key, Run: mark.Run}.String(),
			"kind":     w.mark("gone-1", naming.KindScratch).String(),
			"tail":     mark.String() + " and more", "case": strings.ToUpper(mark.String()),
		} {
			i := w.rack.addInstance("gone-"+name, description)
			w.rack.addDisk("boot-"+name, strings.Replace(description, "kind=instance", "kind=boot", 1), i.Id)
			w.rack.addDisk("loose-"+name, strings.Replace(description, "kind=instance", "kind=data", 1), "")
			w.rack.addAddress("address-"+name, strings.Replace(description, "kind=instance", "kind=ip", 1), "")
			w.rack.addGroup("group-"+name, strings.Replace(description, "kind=instance", "kind=group", 1), 0)
		}

		w.runFor(5 * grace)
		w.untouched("foreign objects")
	})
}

// Invariant: a request that is in Omni keeps everything of its machine, even if
// its state is missing for a while and in whatever phase it is, as long as its
// status is there.
func TestALiveRequestIsNeverTouched(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, w *world) {
		w.lives(3)
		delete(w.omni.states, "live-00")
		delete(w.omni.statuses, "live-00")
		delete(w.omni.states, "live-01")

		w.omni.requests["live-01"].TearingDown = true
		w.omni.requests["live-02"].TearingDown = true
		w.omni.requests["live-02"].Held = false
		w.omni.machines = nil

		delete(w.omni.statuses, "live-02")

		w.runFor(5 * grace)
		w.untouched("live requests")
	})
}

// Invariant: an instance whose machine is connected in Omni is never an orphan,
// nor are its disks, whether Omni knows it by request or by its UUID in either
// byte order; and it is told.
func TestAConnectedMachineIsNeverAnOrphan(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(30)
		w.machine("gone-1")
		w.omni.machines = append(w.omni.machines,
			janitor.Machine{UUID: "33333333-3333-4333-8333-333333333333", Request: "gone-1", Connected: true},
			janitor.Machine{UUID: w.machine("gone-2").Id, Connected: true},
			janitor.Machine{UUID: swapped(w.machine("gone-3").Id), Connected: true})

		w.runFor(3 * grace)
		w.untouched("connected machines")

		if n := w.logged("connected in Omni"); n != 3 {
			t.Errorf("told %d times", n)
		}

		// Once the links are deleted they go.
		w.omni.machines = w.omni.machines[:30]
		w.runFor(3 * grace)

		if n := len(w.rack.instances); n != 30 {
			t.Errorf("%d instances are left", n)
		}
	})
}

func swapped(id string) string {
	return id[6:8] + id[4:6] + id[2:4] + id[0:2] + "-" + id[11:13] + id[9:11] + "-" + id[16:18] + id[14:16] + id[18:]
}

// Invariant: what comes back in the very moment before it would be removed is
// not removed.
func TestWhatIsThereAgainIsLeftAlone(t *testing.T) {
	t.Parallel()

	for what, change := range map[string]func(w *world){
		"request": func(w *world) { w.omni.requests["gone-1"] = &janitor.Request{ID: "gone-1", Held: true} },
		"connected": func(w *world) {
			w.omni.machines = append(w.omni.machines, janitor.Machine{UUID: "x", Request: "gone-1", Connected: true})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, w *world) {
				w.lives(1)
				w.machine("gone-1")

				stop := w.run()

				w.pass(grace - time.Second)
				// The guard's first read comes after the look that makes it due.
				w.mu.Lock()
				w.before["omni read request gone-1"] = func() { change(w) }
				w.mu.Unlock()

				w.pass(grace)
				stop()

				if what == "request" {
					w.untouched("a request that came back")
				} else if c := w.changes(); len(c) > 0 {
					t.Errorf("done: %q", c)
				}
			})
		})
	}
}

// Invariant: lists are complete or nothing is concluded; what can be read goes
// on all the same.
func TestCompleteListsOrNothing(t *testing.T) {
	t.Parallel()

	for _, op := range []string{
		"rack me", "rack list projects", "rack list instances", "rack list disks", "rack list snapshots", "rack list addresses",
		"rack list groups", "omni list requests", "omni list statuses", "omni list patches", "omni list states", "omni list machines",
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, w *world) {
				w.lives(1)
				w.machine("gone-1")
				w.omni.requests["stuck"] = &janitor.Request{ID: "stuck", Project: "talos", TearingDown: true, Held: true}
				w.omni.states["gone-1"] = plan("gone-1")

				stop := w.run()

				w.mu.Lock()
				w.fails[op] = classErr(rack.ClassInternal)
				w.mu.Unlock()

				w.pass(3 * grace)
				w.untouched("without " + op)

				w.mu.Lock()
				delete(w.fails, op)
				w.mu.Unlock()

				w.pass(2*grace + 5*time.Minute)
				stop()

				if w.rack.bears(naming.RequestKey("gone-1")) || w.omni.requests["stuck"] != nil || len(w.omni.states) != 1 {
					t.Errorf("not done afterwards: %q", w.changes())
				}
			})
		})
	}
}

// Invariant: a dry run says once for each what it would do, and does nothing.
func TestADryRunOnlySays(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(1)
		w.machine("gone-1")
		w.omni.requests["stuck"] = &janitor.Request{ID: "stuck", Project: "talos", TearingDown: true, Held: true}
		w.omni.states["gone-2"] = plan("gone-2")
		w.omni.patches["gone-3"] = true

		w.runFor(5*grace, func(c *janitor.Config) { c.DryRun = true })
		w.untouched("a dry run")

		if n := w.logged("if this were no dry run"); n != 6 {
			t.Errorf("%d things are said", n)
		}
	})
}

// Invariant: an address or a group that something uses stays.
func TestWhatIsInUseStays(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, w *world) {
		w.lives(2)
		w.omni.requests["live-00"].Set, w.omni.requests["live-01"].Set = "workers", "others"
		w.omni.states["live-00"].Spec.Plan.AntiAffinityGroupIds = []string{w.rack.addGroup("planned", w.mark("gone", naming.KindGroup).String(), 0)}
		w.omni.states["live-00"].Spec.Plan.SetGroup = &specs.SetGroupPlan{Set: "workers", Name: "named"}
		// It may yet plan to be in any group of its set.
		w.omni.states["live-01"].Spec.Plan = nil

		w.rack.addGroup("named", w.mark("workers", naming.KindGroup).String(), 0)
		w.rack.addGroup("of-who-plans", w.mark("others", naming.KindGroup).String(), 0)
		w.rack.addGroup("of-a-set-with-members", w.mark("control", naming.KindGroup).String(), 1)
		w.rack.addAddress("attached", w.mark("gone", naming.KindIP).String(), "44444444-4444-4444-8444-444444444444")
		w.rack.addDisk("attached", w.mark("gone", naming.KindData).String(), "44444444-4444-4444-8444-444444444444")

		w.runFor(5 * grace)
		w.untouched("objects in use")
	})
}

// A group of a set that has shrunk is needed by nobody, and is removed although
// the set lives on.
func TestAGroupThatNoPlanNamesIsRemoved(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, w *world) {
		w.lives(1)
		w.omni.requests["live-00"].Set = "workers"
		w.omni.states["live-00"].Spec.Plan.SetGroup = &specs.SetGroupPlan{Set: "workers", Name: "first"}

		first := w.rack.addGroup("first", w.mark("workers", naming.KindGroup).String(), 0)
		second := w.rack.addGroup("second", w.mark("workers", naming.KindGroup).Describe("Keeps machines of the set workers of Omni apart."), 0)

		w.runFor(grace / 2)

		if _, there := w.rack.groups[second]; !there {
			t.Error("the group is removed before the grace is over")
		}

		w.runFor(5 * grace)

		if _, there := w.rack.groups[first]; !there {
			t.Error("the group that a plan names is removed")
		}

		if _, there := w.rack.groups[second]; there {
			t.Error("the group that no plan names is still there")
		}

		if w.logged("removing an orphan: delete") != 1 {
			t.Error("its removal is not logged")
		}
	})
}
