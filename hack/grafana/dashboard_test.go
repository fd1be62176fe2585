package grafana_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/grafana"
	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/prometheus"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
)

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, LegendFormat string }
}

func panels(t *testing.T) []panel {
	t.Helper()

	var d struct {
		Title  string
		Panels []panel
	}

	if err := json.Unmarshal([]byte(grafana.Dashboard), &d); err != nil {
		t.Fatal(err)
	}

	if d.Title == "" || len(d.Panels) == 0 {
		t.Fatal("the dashboard is empty")
	}

	return d.Panels
}

var (
	series  = regexp.MustCompile(`oipo_[a-z_]+`)
	grouped = regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	matched = regexp.MustCompile(`[{,]([a-z_]+)(?:=|!)`)
	legend  = regexp.MustCompile(`{{([a-z_]+)}}`)
)

// Invariant: each query is about metrics and labels that the daemon has, and
// Prometheus can parse it.
func TestTheDashboardAsksOnlyForWhatThereIs(t *testing.T) {
	t.Parallel()

	known, shown := metrics.Series(), map[string]bool{}

	var rules strings.Builder

	rules.WriteString("groups:\n  - name: queries\n    rules:\n")

	for _, p := range panels(t) {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}

		for i, target := range p.Targets {
			names := series.FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("panel %q: %s", p.Title, target.Expr)
			}

			labels := []string{"le", "job", "instance"}

			for _, n := range names {
				shown[n] = true

				if !known[n] {
					t.Errorf("panel %q: there is no metric %s", p.Title, n)
				}

				labels = append(labels, labelsOf(n)...)
			}

			for _, l := range used(target.Expr, target.LegendFormat) {
				if !slices.Contains(labels, l) {
					t.Errorf("panel %q: no metric of %s has a label %s", p.Title, target.Expr, l)
				}
			}

			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(target.Expr)
			fmt.Fprintf(&rules, "      - {record: 'panel:%d:%d', expr: %q}\n", p.ID, i, expr)
		}
	}

	for _, d := range metrics.Definitions() {
		if !shown[d.Name] && !shown[d.Name+"_bucket"] {
			t.Errorf("the dashboard does not show %s", d.Name)
		}
	}

	err := prometheus.Promtool(t.Context(), t.TempDir(), map[string]string{"rules.yaml": rules.String()}, "check", "rules", "rules.yaml")

	switch {
	case errors.Is(err, prometheus.ErrNoPromtool) && os.Getenv("CI") == "":
		t.Skip(err)
	case err != nil:
		t.Error(err)
	}
}

func labelsOf(name string) []string {
	var labels []string

	for _, d := range metrics.Definitions() {
		if rest, ok := strings.CutPrefix(name, d.Name); ok && (rest == "" || rest == "_bucket" || rest == "_sum" || rest == "_count") {
			for _, l := range d.Labels {
				labels = append(labels, l.Name)
			}
		}
	}

	return labels
}

// used are the labels that a query and its legend name.
func used(expr, text string) []string {
	var labels []string

	for _, m := range grouped.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, strings.Split(m[1], ", ")...)
	}

	for _, m := range matched.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, m[1])
	}

	for _, m := range legend.FindAllStringSubmatch(text, -1) {
		labels = append(labels, m[1])
	}

	return labels
}

func TestPanelsDoNotOverlap(t *testing.T) {
	t.Parallel()

	ids, all := map[int]bool{}, panels(t)

	for i, p := range all {
		if ids[p.ID] {
			t.Errorf("two panels have the ID %d", p.ID)
		}

		ids[p.ID] = true

		for _, q := range all[i+1:] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap", p.Title, q.Title)
			}
		}

		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is too wide", p.Title)
		}
	}
}
