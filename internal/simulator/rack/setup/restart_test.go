package setup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/controlplane"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// Invariant: a crash before or after anything that is stored or carried out,
// and a restart, end in the same rack: the plan that was stored first is the
// plan, the database has it, and every sled runs its part of it.
func TestACrashAtAnyPointEndsInTheSameRack(t *testing.T) {
	d := described(t, 2)
	d.Services = plan.Counts{InternalDNS: 2, ExternalDNS: 1, Database: 2, ControlPlane: 2, Pantry: 1, Metrics: 1}

	points := 0

	for n := 1; ; n++ {
		kept := &store.Memory{}
		c := &crasher{Store: kept, at: n}

		first := comeUp(t, Config{Description: d, Store: c, Around: c.point})

		<-first.done

		crashed := first.err != nil
		if crashed && !errors.Is(first.err, errCrash) {
			t.Fatalf("point %d: %v", n, first.err)
		}

		first.end()

		if !crashed && !c.dead {
			break // all points have been crashed at
		}

		points++

		before := plansOf(t, kept)
		second := comeUp(t, Config{Description: d, Store: kept})
		h := second.handOver()
		after := plansOf(t, kept)

		for name, raw := range before {
			if raw != nil && !bytes.Equal(raw, after[name]) {
				t.Fatalf("%s: the %s was made anew", c.where, name)
			}
		}

		checkRack(t, c.where, kept, h.RackID)
		second.end()
	}

	if points < 60 {
		t.Errorf("only %d points were crashed at", points)
	}

	t.Logf("crashed at %d points", points)
}

// Invariant: it is so too for a rack that crashes again and again, each time
// somewhat later.
func TestARackThatCrashesAgainAndAgain(t *testing.T) {
	d := described(t, 3)
	kept := &store.Memory{}

	var first map[string][]byte

	for n, up := 1, false; !up; n += 4 {
		c := &crasher{Store: kept, at: n}
		u := comeUp(t, Config{Description: d, Store: c, Around: c.point})

		if <-u.done; u.err != nil && !errors.Is(u.err, errCrash) {
			t.Fatalf("run to point %d: %v", n, u.err)
		}

		up = u.err == nil
		u.end()

		plans := plansOf(t, kept)
		for name, raw := range first {
			if !bytes.Equal(raw, plans[name]) {
				t.Fatalf("run to point %d: the %s was made anew", n, name)
			}
		}

		if plans[plan.ServicesName] != nil {
			first = plans
		}

		if up {
			checkRack(t, "at last", kept, u.result.RackID)
		}
	}
}

func plansOf(t *testing.T, s store.Store) map[string][]byte {
	t.Helper()

	out := map[string][]byte{}

	for _, name := range []string{plan.SledsName, plan.ServicesName} {
		raw, _, err := s.Load(name)
		if err != nil {
			t.Fatal(err)
		}

		out[name] = raw
	}

	return out
}

// checkRack holds what all parts of a rack keep against the plans.
func checkRack(t *testing.T, where string, kept *store.Memory, id string) {
	t.Helper()

	var (
		sleds    plan.Sleds
		services plan.Services
		marker   map[string]string
		database struct {
			RackID   string         `json:"rack_id"`
			Services []plan.Service `json:"services"`
			Datasets []plan.Dataset `json:"datasets"`
		}
	)

	load(t, kept, plan.SledsName, &sleds)
	load(t, kept, plan.ServicesName, &services)
	load(t, kept, markerName, &marker)
	load(t, kept, "database", &database)

	for _, got := range []string{sleds.RackID, services.RackID, marker["rack_id"], database.RackID} {
		if got != id || id == "" {
			t.Fatalf("%s: a part of the rack is of rack %q, the hand-over of %q", where, got, id)
		}
	}

	same(t, where+": the database's services", database.Services, services.Services)
	same(t, where+": the database's datasets", database.Datasets, services.Datasets)

	var run struct {
		dns      []plan.DNSServer
		services map[string]plan.Service
		datasets int
	}

	run.services = map[string]plan.Service{}

	for _, s := range sleds.Sleds {
		var l struct {
			ID       string           `json:"id"`
			DNS      []plan.DNSServer `json:"dns"`
			Services []plan.Service   `json:"services"`
			Datasets []plan.Dataset   `json:"datasets"`
		}

		load(t, kept, "sled."+strings.ToLower(s.Serial), &l)

		if l.ID != s.ID {
			t.Fatalf("%s: sled %s is %s, planned as %s", where, s.Serial, l.ID, s.ID)
		}

		run.dns = append(run.dns, l.DNS...)
		run.datasets += len(l.Datasets)

		for _, x := range l.Services {
			run.services[x.ID] = x
		}
	}

	if len(run.dns) != len(services.DNS) || len(run.services) != len(services.Services) || run.datasets != len(services.Datasets) {
		t.Fatalf("%s: the sleds run %d DNS servers, %d services, %d datasets of a plan of %d, %d, %d", where,
			len(run.dns), len(run.services), run.datasets, len(services.DNS), len(services.Services), len(services.Datasets))
	}

	for _, x := range services.Services {
		if run.services[x.ID] != x {
			t.Fatalf("%s: %+v runs, planned is %+v", where, run.services[x.ID], x)
		}
	}
}

func load(t *testing.T, s store.Store, name string, into any) {
	t.Helper()

	raw, found, err := s.Load(name)
	if err != nil || !found {
		t.Fatalf("%s: %v, %v", name, found, err)
	}

	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func same(t *testing.T, what string, a, b any) {
	t.Helper()

	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)

	if !bytes.Equal(x, y) {
		t.Fatalf("%s: %s\nwant %s", what, x, y)
	}
}

// A crash between the hand-over and its marker makes the rack be handed over
// again, which returns early, and nothing is stored anew but the marker.
func TestACrashBetweenHandOverAndMarker(t *testing.T) {
	kept := &store.Memory{}
	crash := func(action string) error {
		if action == "after hand-over" {
			return errCrash
		}

		return nil
	}

	first := comeUp(t, Config{Description: described(t, 1), Store: kept, Around: crash})
	if <-first.done; !errors.Is(first.err, errCrash) {
		t.Fatal(first.err)
	}

	first.end()

	database, _, err := kept.Load("database")
	if err != nil || database == nil {
		t.Fatalf("the database has %q, %v", database, err)
	}

	if _, marked, _ := kept.Load(markerName); marked {
		t.Fatal("the marker is there")
	}

	second := comeUp(t, Config{Description: described(t, 1), Store: kept})
	second.handOver()

	if !second.said("had taken the rack before, nothing is changed") {
		t.Errorf("it did not say so: %q", second.State().Lines)
	}

	if n := second.logs.FilterMessageSnippet("had been handed over before").Len(); n != 1 {
		t.Errorf("logged %d times", n)
	}

	if again, _, _ := kept.Load("database"); !bytes.Equal(again, database) {
		t.Error("the database was changed")
	}

	if _, marked, _ := kept.Load(markerName); !marked {
		t.Error("the marker is not there")
	}

	second.end()

	// From the marker on nothing is planned, carried out or stored.
	c := &crasher{Store: kept}
	third := comeUp(t, Config{Description: described(t, 1), Store: c, Around: c.point})

	if h := third.handOver(); h.RackID != second.result.RackID {
		t.Errorf("it is rack %s, and was %s", h.RackID, second.result.RackID)
	}

	if c.passed != 0 || third.said("sled plan") {
		t.Errorf("%d things were done: %q", c.passed, third.State().Lines)
	}
}

// A directory of another rack, and one with parts missing, are told before
// anything starts.
func TestAStoreThatIsNotThisRacks(t *testing.T) {
	kept := &store.Memory{}
	first := comeUp(t, Config{Description: described(t, 2), Store: kept})
	first.handOver()
	first.end()

	refused := func(d plan.Description, s store.Store, want string) {
		t.Helper()

		u := comeUp(t, Config{Description: d, Store: s})
		if <-u.done; u.err == nil || !strings.Contains(u.err.Error(), want) {
			t.Errorf("%v, want %q", u.err, want)
		}

		u.end()
	}

	refused(described(t, 3), kept, "of another rack, which differs in sleds")

	for missing, want := range map[string]string{
		plan.ServicesName: "its plans are gone", plan.SledsName: "its plans are gone", "sled.": "its sleds know nothing",
		controlplane.DatabaseName: "its database is gone",
	} {
		part := &store.Memory{}

		for _, name := range kept.Names() {
			if raw, _, _ := kept.Load(name); !strings.HasPrefix(name, missing) {
				_ = part.Save(name, raw)
			}
		}

		refused(described(t, 2), part, want)
	}

	// Plans that were made anew are no plans of sleds that are somebody already.
	part := &store.Memory{}

	for _, name := range kept.Names() {
		if raw, _, _ := kept.Load(name); strings.HasPrefix(name, "sled.") {
			_ = part.Save(name, raw)
		}
	}

	refused(described(t, 2), part, "belongs to another rack plan")

	_ = kept.Save("sled.brm42220001", []byte("{"))

	if _, err := New(Config{Description: described(t, 2), Store: kept}); err == nil || !strings.Contains(err.Error(), "sled.brm42220001 can not be used: the ledger of sled BRM42220001: unexpected end of JSON input; restore it") {
		t.Errorf("%v", err)
	}
}

// Invariant: a stored file that is broken, or of another rack, ends the rack
// with one line that names the file, and the file is left as it is.
func TestABrokenFileIsNamed(t *testing.T) {
	whole, other := t.TempDir(), t.TempDir()

	for _, dir := range []string{whole, other} {
		d := open(t, dir)
		u := comeUp(t, Config{Description: described(t, 1), Store: d})
		u.handOver()
		u.end()
		must(t, d.Close())
	}

	files, err := filepath.Glob(filepath.Join(whole, "*.json"))
	if err != nil || len(files) < 8 {
		t.Fatalf("%q, %v", files, err)
	}

	for _, file := range files {
		name := filepath.Base(file)

		spoiled := map[string][]byte{"cut off": []byte("{\"format\": 1,\n\n"), "empty": {}}
		if !strings.HasPrefix(name, "sled.") && !strings.HasPrefix(name, "dns.") && name != "sled-plan.json" {
			raw, err := os.ReadFile(filepath.Join(other, name))
			must(t, err)

			spoiled["of another rack"] = raw
		}

		for how, content := range spoiled {
			dir := t.TempDir()
			must(t, os.CopyFS(dir, os.DirFS(whole)))

			path := filepath.Join(dir, name)
			must(t, os.WriteFile(path, content, 0o600))

			d := open(t, dir)

			err := runOnce(t, Config{Description: described(t, 1), Store: d, Clock: Scaled(0.001)})
			if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") || !errors.Is(err, store.ErrUnusable) {
				t.Errorf("%s, %s: %v", name, how, err)
			}

			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
				t.Errorf("%s, %s: the file has changed: %v", name, how, err)
			}

			must(t, d.Close())
		}
	}

	d := open(t, whole)
	defer d.Close()

	err = runOnce(t, Config{Description: described(t, 2), Store: d, Clock: Scaled(0.001)})
	if want := filepath.Join(whole, "sled-plan.json") + " is the plan of another rack, which differs in sleds: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("another description: %v, want %s", err, want)
	}
}

func open(t *testing.T, dir string) *store.Directory {
	t.Helper()

	d, err := store.Open(dir)
	must(t, err)

	return d
}

// runOnce is a rack that is expected to end by itself.
func runOnce(t *testing.T, cfg Config) error {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	r, err := New(cfg)
	if err != nil {
		return err
	}

	_, err = r.Run(ctx)

	return errors.Join(err, r.Close())
}

func must(t *testing.T, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}
