package provider

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/prometheus"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// scrape is all series of ours and their values.
func scrape(t *testing.T, m *metrics.Metrics) map[string]float64 {
	t.Helper()

	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]float64{}

	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "oipo_") {
			continue
		}

		for _, s := range f.GetMetric() {
			labels := ""
			for _, l := range s.GetLabel() {
				labels += fmt.Sprintf(",%s=%q", l.GetName(), l.GetValue())
			}

			labels = "{" + strings.TrimPrefix(labels, ",") + "}"

			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[f.GetName()+labels] = s.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				out[f.GetName()+"_count"+labels] = float64(s.GetHistogram().GetSampleCount())
				out[f.GetName()+"_sum"+labels] = s.GetHistogram().GetSampleSum()
			default:
				out[f.GetName()+labels] = s.GetGauge().GetValue()
			}
		}
	}

	return out
}

// Invariant: while machines come, stay and go as they should, no alert fires; and
// the metrics say what happened.
func TestNoAlertFiresInAHealthyRun(t *testing.T) {
	t.Parallel()

	const minutes = 150

	var (
		rows  []map[string]float64
		began time.Time
	)

	bubble(t, func(t *testing.T, b *bench) {
		m := metrics.New()
		times := lease.Times{Duration: lease.DefaultDuration, Renew: lease.DefaultRenew, Stop: lease.DefaultStop}
		d := b.serve(func(o *Options) {
			o.Metrics, o.Lease, o.Host = m, &times, "here"
			o.Janitor, o.JanitorGrace = JanitorOn, 10*time.Minute
		})

		began = time.Now()

		for minute := range minutes {
			switch minute {
			case 5:
				for n := range 3 {
					b.ask(fmt.Sprintf("talos-workers-%d", n))
				}
			case 10:
				for n := range 3 {
					b.joined(fmt.Sprintf("talos-workers-%d", n))
				}
			case 100:
				b.remove("talos-workers-0")
			}

			b.pass(time.Minute)

			rows = append(rows, scrape(t, m))
		}

		last := rows[minutes-1]

		for series, want := range map[string]float64{
			`oipo_ready{}`: 1, `oipo_lease_held{}`: 1, `oipo_lease_term{}`: 1, `oipo_lease_events_total{event="taken"}`: 1,
			`oipo_requests{stage="provisioned"}`: 2, `oipo_requests{stage="failed"}`: 0,
			`oipo_machines{finding="well"}`: 2, `oipo_instances{state="running"}`: 2,
			`oipo_request_provision_duration_seconds_count{}`: 3, `oipo_request_removal_duration_seconds_count{}`: 1,
			`oipo_step_duration_seconds_count{result="done",step="start"}`: 3, `oipo_step_duration_seconds_count{result="failed",step="plan"}`: 0,
			`oipo_rack_requests_total{operation="creating the instance",result="ok"}`: 3,
			`oipo_workers{}`: 4, `oipo_workers_busy{}`: 0, `oipo_panics_total{}`: 0,
			`oipo_need_met{need="omni"}`: 1, `oipo_need_met{need="rack"}`: 1, `oipo_orphans{kind="instance"}`: 0,
		} {
			if got, there := last[series]; !there || got != want {
				t.Errorf("%s is %v (%v), want %v", series, got, there, want)
			}
		}

		// The queues of all daemons that the process ever had are counted together.
		if _, there := last[`oipo_queue_length{}`]; !there {
			t.Error("the queue is not counted")
		}

		if looked := last[`oipo_janitor_last_look_timestamp_seconds{}`]; time.Since(time.UnixMilli(int64(looked*1000))) > 5*time.Minute {
			t.Errorf("the janitor last looked at %v", looked)
		}

		b.ok(d.stop())
	})

	err := prometheus.Promtool(t.Context(), t.TempDir(),
		map[string]string{"alerts.yaml": prometheus.Alerts, "tests.yaml": quiet(rows, began)}, "test", "rules", "tests.yaml")

	switch {
	case errors.Is(err, prometheus.ErrNoPromtool) && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Error(err)
	}
}

// quiet is a test for promtool that no alert fires under the scraped series, one
// row a minute.
func quiet(rows []map[string]float64, began time.Time) string {
	names := map[string]bool{}

	for _, r := range rows {
		for n := range r {
			names[n] = true
		}
	}

	var b strings.Builder

	b.WriteString("rule_files: [alerts.yaml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n")

	for _, n := range slices.Sorted(maps.Keys(names)) {
		var values []string

		for _, r := range rows {
			v, there := r[n]

			// promtool's clock begins at 0.
			if strings.HasPrefix(n, "oipo_janitor_last_look") && v != 0 {
				v -= float64(began.Unix())
			}

			if there {
				values = append(values, fmt.Sprint(v))
			} else {
				values = append(values, "_")
			}
		}

		name, labels, _ := strings.Cut(n, "{")
		series := name + `{job="oxide",instance="a",` + labels
		fmt.Fprintf(&b, "      - {series: %q, values: %q}\n", strings.Replace(series, ",}", "}", 1), strings.Join(values, " "))
	}

	b.WriteString("    promql_expr_test:\n")

	for minute := 1; minute < len(rows); minute++ {
		fmt.Fprintf(&b, "      - {expr: 'ALERTS{alertstate=\"firing\"}', eval_time: %dm, exp_samples: []}\n", minute)
	}

	return b.String()
}

// Invariant: what goes wrong is counted by its class, with what it leads to.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		m := metrics.New()
		d := b.serve(func(o *Options) { o.Metrics = m })
		b.untilReady(d)

		b.fault(simrack.Fault{Action: simrack.ActionError, Operation: "instance_create", Status: 507, Code: "InsufficientCapacity", Message: "Insufficient capacity: no sled has room", Count: 2})
		b.ask(theRequest)
		b.ask("talos-workers-broken", class("project: demo\ncpus: 9999\n"))
		b.untilStage(theRequest, stageProvisioned)
		b.untilStage("talos-workers-broken", stageFailed)
		b.pass(3 * time.Minute)

		got := scrape(t, m)

		for _, series := range []string{
			`oipo_rack_requests_total{operation="creating the instance",result="capacity"}`,
			`oipo_retries_total{class="capacity",what="step"}`,
			`oipo_retries_total{class="other",what="step"}`,
			`oipo_step_duration_seconds_count{result="failed",step="plan"}`,
			`oipo_requests{stage="failed"}`,
		} {
			if got[series] < 1 {
				t.Errorf("%s is %v", series, got[series])
			}
		}
	})
}
