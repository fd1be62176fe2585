package prometheus_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/prometheus"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
)

type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()

	var file struct {
		Groups []struct{ Rules []rule }
	}

	if err := yaml.Unmarshal([]byte(prometheus.Alerts), &file); err != nil {
		t.Fatal(err)
	}

	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("%d groups", len(file.Groups))
	}

	return file.Groups[0].Rules
}

// promtool runs it. Where it is missing a developer's test is skipped, and one of
// the checks for a change fails.
func promtool(t *testing.T, files map[string]string, args ...string) {
	t.Helper()

	err := prometheus.Promtool(t.Context(), t.TempDir(), files, args...)

	switch {
	case errors.Is(err, prometheus.ErrNoPromtool) && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

func TestPrometheusTakesTheRules(t *testing.T) {
	t.Parallel()

	promtool(t, map[string]string{"alerts.yaml": prometheus.Alerts}, "check", "rules", "alerts.yaml")
}

// fires has series, one value a minute, under which each alert fires at the
// minute: `a+bxn` is n+1 values from a on, each b more.
var fires = map[string]struct {
	series map[string]string
	minute int
}{
	"OxideProviderMissing":     {map[string]string{`up`: "0x20"}, 6},
	"OxideProviderNobodyWorks": {map[string]string{`oipo_lease_held{instance="a"}`: "0x20", `oipo_lease_held{instance="b"}`: "0x20"}, 6},
	"OxideProviderTwoWork":     {map[string]string{`oipo_lease_held{instance="a"}`: "1x20", `oipo_lease_held{instance="b"}`: "1x20"}, 3},
	"OxideProviderNotReady":    {map[string]string{`oipo_ready{instance="a"}`: "0x20"}, 6},
	"OxideProviderNeedNotMet":  {map[string]string{`oipo_need_met{need="rack"}`: "0x20", `oipo_need_met{need="omni"}`: "1x20"}, 11},
	"OxideProviderTokenRefused": {map[string]string{
		`oipo_rack_requests_total{operation="reading the token's user",result="credentials"}`: "0+1x30",
	}, 10},
	"OxideProviderRackErrors": {map[string]string{
		`oipo_rack_requests_total{operation="a",result="ok"}`:   "0+8x40",
		`oipo_rack_requests_total{operation="a",result="lost"}`: "0+2x40",
	}, 25},
	"OxideProviderNoCapacity":     {map[string]string{`oipo_retries_total{what="step",class="capacity"}`: "0+2x60"}, 40},
	"OxideProviderRequestsFailed": {map[string]string{`oipo_requests{stage="failed"}`: "1x20"}, 11},
	"OxideProviderRequestsStuck": {map[string]string{
		`oipo_requests{stage="provisioning"}`: "3x200", `oipo_request_provision_duration_seconds_count`: "7x200",
	}, 125},
	"OxideProviderRemovalNeedsPerson": {map[string]string{`oipo_removals_waiting{for="mend"}`: "1x20"}, 11},
	"OxideProviderImagesFail": {map[string]string{
		`oipo_image_uploads_total{result="error"}`: "0+1x60", `oipo_image_uploads_total{result="ok"}`: "4x60",
	}, 40},
	"OxideProviderMachinesNotWell": {map[string]string{`oipo_machines{finding="stopped"}`: "1x20", `oipo_machines{finding="well"}`: "9x20"}, 11},
	"OxideProviderJanitorBraked":   {map[string]string{`oipo_janitor_brake`: "1x20"}, 6},
	"OxideProviderJanitorBlind":    {map[string]string{`oipo_janitor_last_look_timestamp_seconds`: "60x60"}, 40},
	"OxideProviderOrphans":         {map[string]string{`oipo_orphans{kind="boot"}`: "1x80"}, 62},
	"OxideProviderStatesOdd":       {map[string]string{`oipo_stored_states_odd{oddity="unknown_step"}`: "1x20"}, 11},
	"OxideProviderPanics":          {map[string]string{`oipo_panics_total`: "0x5 1x20"}, 8},
	"OxideProviderWorkersBusy": {map[string]string{
		`oipo_workers_busy`: "10x40", `oipo_workers`: "10x40", `oipo_queue_length`: "80x40",
	}, 17},
	"OxideProviderLinkBreaks": {map[string]string{`oipo_omni_links_ended_total{cause="away"}`: "0+1x60"}, 35},
	"OxideProviderLeaseLost":  {map[string]string{`oipo_lease_events_total{event="lost"}`: "0+1x10"}, 8},
}

// Invariant: every alert fires when what it is about is so, and not before.
func TestEachAlertFires(t *testing.T) {
	t.Parallel()

	var b strings.Builder

	b.WriteString("rule_files: [alerts.yaml]\nevaluation_interval: 1m\ntests:\n")

	for _, r := range alerts(t) {
		f, ok := fires[r.Alert]
		if !ok {
			t.Errorf("nothing shows that %s fires", r.Alert)

			continue
		}

		fmt.Fprintf(&b, "  - name: %s\n    interval: 1m\n    input_series:\n", r.Alert)

		for _, series := range slices.Sorted(maps.Keys(f.series)) {
			of := series + `{job="oxide"}`
			if name, labels, more := strings.Cut(series, "{"); more {
				of = name + `{job="oxide",` + labels
			}

			fmt.Fprintf(&b, "      - {series: %q, values: %q}\n", of, f.series[series])
		}

		expr := fmt.Sprintf(`count(ALERTS{alertname=%q,alertstate="firing"})`, r.Alert)
		fmt.Fprintf(&b, "    promql_expr_test:\n      - {expr: %q, eval_time: %dm, exp_samples: [{value: 1}]}\n", expr, f.minute)
		fmt.Fprintf(&b, "      - {expr: %q, eval_time: 0m, exp_samples: []}\n", expr)
	}

	promtool(t, map[string]string{"alerts.yaml": prometheus.Alerts, "tests.yaml": b.String()}, "test", "rules", "tests.yaml")
}

var name = regexp.MustCompile(`oipo_[a-z_]+`)

func TestAlertsAreForPeopleAndNameOnlyMetricsThatExist(t *testing.T) {
	t.Parallel()

	known := metrics.Series()

	for _, r := range alerts(t) {
		for _, n := range name.FindAllString(r.Expr, -1) {
			if !known[n] {
				t.Errorf("%s: there is no metric %s", r.Alert, n)
			}
		}

		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s has severity %q", r.Alert, s)
		}

		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || strings.Contains(r.Annotations["summary"], "\n") {
			t.Errorf("%s says %q", r.Alert, r.Annotations)
		}
	}

	if len(fires) != len(alerts(t)) {
		t.Errorf("%d alerts, %d ways to have one fire", len(alerts(t)), len(fires))
	}
}
