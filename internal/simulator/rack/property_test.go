package rack

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
	"pgregory.net/rapid"
)

// The tables of the package comment, once more, as what may follow a state
// when one call or event has ended. "" is no object.
var (
	diskFollows = map[string][]string{
		"":                           {"detached", "import_ready", "attached"},
		"import_ready":               {"importing_from_bulk_writes", "detached"},
		"importing_from_bulk_writes": {"import_ready"},
		"detached":                   {"attached", ""},
		"attached":                   {"detached"},
	}
	runFollows = map[string][]string{
		"":        {"stopped", "starting"},
		"stopped": {"starting", ""},
		"running": {"rebooting", "migrating", "stopping"},
		// These ends come by themselves.
		"starting":  {"running", "stopping"},
		"rebooting": {"running", "stopping"},
		"migrating": {"running", "stopping"},
		"stopping":  {"stopped", "failed"},
		"failed":    {"starting", "stopped", ""},
	}
	snapshotFollows = map[string][]string{"": {"ready"}, "ready": {""}}
	imageFollows    = map[string][]string{"": {"project", "silo"}, "project": {"silo", ""}, "silo": {"project", ""}}
	floatingFollows = map[string][]string{"": {"free"}, "free": {"attached", ""}, "attached": {"free"}}
)

// tables are the kinds of objects, with how many steps may have passed between
// two looks: timers take instances further than one.
var tables = []struct {
	kind  string
	after map[string][]string
	steps int
}{
	{"disk", diskFollows, 1}, {"instance", runFollows, 4}, {"snapshot", snapshotFollows, 1},
	{"image", imageFollows, 1}, {"floating IP", floatingFollows, 1},
}

// walker makes random calls and remembers what it saw last, by kind and ID.
type walker struct {
	r    *rig
	seen map[string]map[string]string
}

// look compares what is there with what was, by the tables. Where a timer may
// have passed several states, each step of a path must be in the table.
func (w *walker) look(t *rapid.T, after string) {
	now := w.r.states()

	for _, table := range tables {
		follow(t, after, table.kind, w.seen[table.kind], now[table.kind], table.after, table.steps)
	}

	w.seen = now
}

// states are those of all objects, by kind and ID.
func (r *rig) states() map[string]map[string]string {
	out := map[string]map[string]string{"disk": {}, "instance": {}, "snapshot": {}, "image": {}, "floating IP": {}}

	r.mu.Lock()
	defer r.mu.Unlock()

	for id, d := range r.disks.byID {
		out["disk"][id] = string(d.state)
	}

	for id, i := range r.instances.byID {
		out["instance"][id] = string(i.state)
	}

	for id, x := range r.snapshots.byID {
		out["snapshot"][id] = x.state
	}

	for id, m := range r.images.byID {
		out["image"][id] = map[bool]string{true: "silo", false: "project"}[m.scope == ""]
	}

	for id, f := range r.floating.byID {
		out["floating IP"][id] = map[bool]string{true: "free", false: "attached"}[f.on == nil]
	}

	return out
}

func follow(t *rapid.T, after, kind string, old, now map[string]string, table map[string][]string, steps int) {
	ids := map[string]bool{}
	for id := range old {
		ids[id] = true
	}

	for id := range now {
		ids[id] = true
	}

	for id := range ids {
		if !reachable(table, old[id], now[id], steps) {
			t.Fatalf("%s: a %s went from %q to %q", after, kind, old[id], now[id])
		}
	}
}

func reachable(table map[string][]string, from, to string, steps int) bool {
	if from == to {
		return true
	}

	return steps > 0 && slices.ContainsFunc(table[from], func(next string) bool { return reachable(table, next, to, steps-1) })
}

// Invariant: no sequence of calls and events takes an object off its table,
// and what is charged is always what there is.
func TestRandomCallsStayWithinTheTables(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, err := New(Config{Latencies: &Latencies{}, TimeScale: 1})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()

		r := newRigOf(t, s)
		defer r.end()

		w := &walker{r: r, seen: map[string]map[string]string{}}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		calls := w.calls(t.Context())
		maps.Copy(calls, w.moreCalls(t.Context()))
		names := make([]string, 0, len(calls))

		for n := range calls {
			names = append(names, n)
		}

		slices.Sort(names)

		for range rapid.IntRange(1, 60).Draw(rt, "calls") {
			what, on := rapid.SampledFrom(names).Draw(rt, "call"), name.Draw(rt, "name")
			err := calls[what](on)

			var h *oxide.HTTPError
			if errors.As(err, &h) && h.HTTPResponse.StatusCode >= 500 && h.HTTPResponse.StatusCode != http.StatusInsufficientStorage {
				rt.Fatalf("%s %s: %s", what, on, short(err))
			}

			w.look(rt, what+" "+on)
		}

		w.account(rt)
	})
}

// byName makes a call by ID one by name.
func (w *walker) byName(ctx context.Context) func(func(id string) error) func(string) error {
	return func(f func(id string) error) func(string) error {
		return func(n string) error {
			i, err := w.r.client.InstanceView(ctx, oxide.InstanceViewParams{Project: demo, Instance: oxide.NameOrId(n)})
			if err != nil {
				return err
			}

			return f(i.Id)
		}
	}
}

func (w *walker) onDisk(ctx context.Context) func(func(id string) error) func(string) error {
	return func(f func(id string) error) func(string) error {
		return func(n string) error {
			d, err := w.r.client.DiskView(ctx, oxide.DiskViewParams{Project: demo, Disk: oxide.NameOrId(n)})
			if err != nil {
				return err
			}

			return f(d.Id)
		}
	}
}

func (w *walker) calls(ctx context.Context) map[string]func(string) error {
	r := w.r
	byName, onDisk := w.byName(ctx), w.onDisk(ctx)

	return map[string]func(string) error{
		"disk create": func(n string) error { _, err := r.createDisk(n, gib, blank(0)); return err },
		"disk import": func(n string) error { _, err := r.createDisk(n, gib, importing()); return err },
		"disk delete": onDisk(func(id string) error {
			return r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Disk: oxide.NameOrId(id)})
		}),
		"write start":   onDisk(r.start),
		"write":         onDisk(func(id string) error { return r.write(id, 0, make([]byte, 512)) }),
		"write stop":    onDisk(r.stop),
		"finalize":      onDisk(func(id string) error { return r.finalize(id, "") }),
		"finalize snap": onDisk(func(id string) error { return r.finalize(id, "s") }),
		"snapshot delete": func(string) error {
			return r.client.SnapshotDelete(ctx, oxide.SnapshotDeleteParams{Project: demo, Snapshot: "s"})
		},
		"instance create": func(n string) error {
			_, err := r.createInstance(n, func(b *oxide.InstanceCreate) {
				b.Disks = []oxide.InstanceDiskAttachment{existing(n), newDiskNamed("of-"+n, gib)}
				b.Start = nil
			})

			return err
		},
		"instance delete": byName(r.deleteInstance), "start": byName(r.startInstance), "stop": byName(r.stopInstance),
		"reboot": byName(r.reboot), "crash": byName(r.Crash), "power off": byName(r.GuestPowerOff),
	}
}
