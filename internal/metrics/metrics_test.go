package metrics

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// used is metrics in which everything has happened once.
func used() *Metrics {
	m := New()
	m.RackCall("creating the instance", "ok", time.Second)
	m.Step("plan", "done", time.Second)
	m.Retry("step", "capacity")
	m.Provisioned(time.Minute)
	m.Removed(time.Minute)
	m.Panicked()
	m.Uploaded("ok", time.Minute)
	m.Wrote(1)
	m.Skipped(1)
	m.Janitor("delete", "boot")
	m.Lease("taken")
	m.MachineStart("ok")
	m.LinkEnded("other key")
	m.Read(func() Facts {
		return Facts{Needs: map[string]bool{"rack": true}, Notes: []string{"machines"}, LastLook: time.Unix(1, 0), Stages: map[string]int{"failed": 3}}
	})

	return m
}

// Invariant: names, units and help are as Prometheus wants them.
func TestThePrometheusLintFindsNothing(t *testing.T) {
	t.Parallel()

	m := used()

	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}

	all, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}

	there := map[string]bool{}
	for _, f := range all {
		there[f.GetName()] = true
	}

	for _, d := range Definitions() {
		if !there[d.Name] {
			t.Errorf("%s is in the catalogue and in no scrape", d.Name)
		}

		delete(there, d.Name)
	}

	for name := range there {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is not in the catalogue", name)
		}
	}
}

// Invariant: no label can hold what grows with requests: the values of each are
// known here, or come from a fixed set that the catalogue describes.
func TestEverySeriesWithKnownValuesIsThereFromTheStart(t *testing.T) {
	t.Parallel()

	all, err := New().Gather()
	if err != nil {
		t.Fatal(err)
	}

	series := map[string]int{}
	for _, f := range all {
		series[f.GetName()] = len(f.GetMetric())
	}

	for _, d := range Definitions() {
		want := len(d.atStart())
		if d.Name == build {
			want = 1
		}

		if d.Name == needs { // those of the daemon's board
			want = 0
		}

		if got := series[d.Name]; got != want {
			t.Errorf("%s has %d series at the start, want %d", d.Name, got, want)
		}
	}
}

func TestTheClassesAreThoseOfTheRack(t *testing.T) {
	t.Parallel()

	want := []string{}
	for c := rack.ClassOK; c.String() != "unknown"; c++ {
		want = append(want, c.String())
	}

	if !slices.Equal(classes, want) {
		t.Errorf("the catalogue knows %v, the rack has %v", classes, want)
	}
}

func TestCountsAreServed(t *testing.T) {
	t.Parallel()

	w := httptest.NewRecorder()
	used().Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))

	want := map[string]bool{
		`oipo_rack_requests_total{operation="creating the instance",result="ok"} 1`: true,
		`oipo_requests{stage="failed"} 3`:                                           true,
		`oipo_omni_links_ended_total{cause="other_key"} 1`:                          true,
		`oipo_janitor_last_look_timestamp_seconds 1`:                                true,
		`oipo_need_met{need="rack"} 1`:                                              true,
	}

	for line := range strings.Lines(w.Body.String()) {
		delete(want, strings.TrimSpace(line))
	}

	for line := range maps.Keys(want) {
		t.Errorf("not served: %s", line)
	}
}
