package rack

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

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
		"":         {"stopped", "starting"},
		"stopped":  {"starting", ""},
		"starting": {"running", "stopping"},
		"running":  {"rebooting", "stopping"},
		// These ends come by themselves.
		"rebooting": {"running", "stopping"},
		"stopping":  {"stopped", "failed"},
		"failed":    {"starting", "stopped", ""},
	}
)

// walker makes random calls and remembers what it saw last.
type walker struct {
	r     *rig
	disks map[string]string
	runs  map[string]string
}

// look compares what is there with what was, by the tables. Where a timer may
// have passed several states, each step of a path must be in the table.
func (w *walker) look(t *rapid.T, after string) {
	now, runs := map[string]string{}, map[string]string{}

	w.r.mu.Lock()
	for _, d := range w.r.disks.byID {
		now[d.id] = string(d.state)
	}

	for _, i := range w.r.instances.byID {
		runs[i.id] = string(i.state)
	}
	w.r.mu.Unlock()

	follow(t, after, "disk", w.disks, now, diskFollows, 1)
	follow(t, after, "instance", w.runs, runs, runFollows, 3)
	w.disks, w.runs = now, runs
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

		w := &walker{r: r, disks: map[string]string{}, runs: map[string]string{}}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		calls := w.calls(t.Context())
		names := make([]string, 0, len(calls))

		for n := range calls {
			names = append(names, n)
		}

		slices.Sort(names)

		for range rapid.IntRange(1, 40).Draw(rt, "calls") {
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

// account lets all instances come to rest and adds up what is charged.
func (w *walker) account(t *rapid.T) {
	s := w.r.Server
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()

	for range 10_000 {
		<-tick.C
		s.mu.Lock()

		var storage, memory, cpus int64

		moving := false

		for _, d := range s.disks.byID {
			storage += d.size
			if (d.on != nil) != (d.state == diskAttached) || d.on != nil && !slices.Contains(d.on.disks, d) {
				t.Errorf("disk %s is %s on %v", d.name, d.state, d.on)
			}
		}

		for _, x := range s.snapshots.byID {
			storage += x.size
		}

		for _, i := range s.instances.byID {
			moving = moving || i.state != stateStopped && i.state != stateFailed && i.state != stateRunning
			if i.sled != nil {
				memory, cpus = memory+i.memory, cpus+int64(i.ncpus)
			}
		}

		got := s.provisioned
		s.mu.Unlock()

		if want := (Quota{CPUs: cpus, Memory: memory, Storage: storage}); got != want {
			t.Fatalf("charged is %+v, there is %+v", got, want)
		}

		if !moving {
			return
		}
	}

	t.Fatal("an instance never came to rest")
}

func (w *walker) calls(ctx context.Context) map[string]func(string) error {
	r := w.r
	ref := func(n string) oxide.NameOrId { return oxide.NameOrId(n) }
	byName := func(f func(id string) error) func(string) error {
		return func(n string) error {
			i, err := r.client.InstanceView(ctx, oxide.InstanceViewParams{Project: demo, Instance: ref(n)})
			if err != nil {
				return err
			}

			return f(i.Id)
		}
	}
	onDisk := func(f func(id string) error) func(string) error {
		return func(n string) error {
			d, err := r.client.DiskView(ctx, oxide.DiskViewParams{Project: demo, Disk: ref(n)})
			if err != nil {
				return err
			}

			return f(d.Id)
		}
	}

	return map[string]func(string) error{
		"disk create":   func(n string) error { _, err := r.createDisk(n, gib, blank(0)); return err },
		"disk import":   func(n string) error { _, err := r.createDisk(n, gib, importing()); return err },
		"disk delete":   onDisk(func(id string) error { return r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Disk: ref(id)}) }),
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
