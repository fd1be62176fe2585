package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// loadResult is what a row has shown.
type loadResult struct {
	Row        string         `json:"row"`
	About      string         `json:"about"`
	Conditions map[string]any `json:"conditions"`
	Figures    []figure       `json:"figures"`
	// RackCalls and OmniCalls are by kind, for each machine or in all as About says.
	RackCalls map[string]float64 `json:"rack_calls,omitempty"`
	OmniCalls map[string]float64 `json:"omni_calls,omitempty"`
	// Waits are seconds for each machine, by what Omni's page says meanwhile.
	Waits map[string]float64 `json:"waits_seconds,omitempty"`
}

// figure is one value, the bound that theory gives it, and the limit that it is
// judged by: on the value, or on the ratio to the bound if there is one.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bound float64 `json:"bound,omitempty"`
	Ratio float64 `json:"ratio,omitempty"`
	Limit float64 `json:"limit,omitempty"`
	// Strict says that a limit of 0 is one.
	Strict bool `json:"strict,omitempty"`
	Missed bool `json:"missed,omitempty"`
}

// add notes a figure without a bound; limit 0 judges nothing.
func (r *loadResult) add(name string, value float64, unit string, limit float64) {
	r.Figures = append(r.Figures, figure{Name: name, Value: value, Unit: unit, Limit: limit, Missed: limit > 0 && value > limit})
}

// none notes a figure that must be 0.
func (r *loadResult) none(name string, value float64, unit string) {
	r.Figures = append(r.Figures, figure{Name: name, Value: value, Unit: unit, Strict: true, Missed: value > 0})
}

// bounded notes a figure beside its bound; limit is on the ratio.
func (r *loadResult) bounded(name string, value float64, unit string, bound, limit float64) {
	f := figure{Name: name, Value: value, Unit: unit, Bound: bound, Limit: limit}
	if bound > 0 {
		f.Ratio = value / bound
	}

	f.Missed = limit > 0 && f.Ratio > limit
	r.Figures = append(r.Figures, f)
}

// loadTable prints results for people.
func loadTable(out io.Writer, results []loadResult) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)

	fmt.Fprintln(w, "row\tfigure\tvalue\tunit\tbound\tratio\tlimit\t")

	for _, r := range results {
		for _, f := range r.Figures {
			bound, ratio, limit := "-", "-", "-"

			if f.Bound > 0 {
				bound, ratio = fmt.Sprintf("%.2f", f.Bound), fmt.Sprintf("%.2f", f.Ratio)
			}

			if f.Limit > 0 || f.Strict {
				limit = fmt.Sprintf("%.4g", f.Limit)
			}

			if f.Missed {
				limit += " MISSED"
			}

			fmt.Fprintf(w, "%s\t%s\t%.4g\t%s\t%s\t%s\t%s\t\n", r.Row, f.Name, f.Value, f.Unit, bound, ratio, limit)
		}

		for _, m := range []struct {
			name, unit string
			values     map[string]float64
		}{{"rack: ", "calls", r.RackCalls}, {"Omni: ", "calls", r.OmniCalls}, {"wait: ", "s", r.Waits}} {
			for _, k := range byValue(m.values) {
				fmt.Fprintf(w, "%s\t%s%s\t%.4g\t%s\t\t\t\t\n", r.Row, m.name, k, m.values[k], m.unit)
			}
		}
	}

	w.Flush() //nolint:errcheck // nothing is left to do about it

	for _, r := range results {
		conditions := make([]string, 0, len(r.Conditions))
		for _, k := range slices.Sorted(maps.Keys(r.Conditions)) {
			conditions = append(conditions, fmt.Sprintf("%s %v", k, r.Conditions[k]))
		}

		fmt.Fprintf(out, "%s: %s; %s\n", r.Row, r.About, strings.Join(conditions, ", "))
	}
}

func byValue(m map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
}

// loadVerdict is an error that names what was missed.
func loadVerdict(results []loadResult) error {
	var missed []string

	for _, r := range results {
		for _, f := range r.Figures {
			switch {
			case !f.Missed:
			case f.Bound > 0:
				missed = append(missed, fmt.Sprintf("%s: %s is %.2f times its bound, limit %.2f", r.Row, f.Name, f.Ratio, f.Limit))
			default:
				missed = append(missed, fmt.Sprintf("%s: %s is %.4g %s, limit %.4g", r.Row, f.Name, f.Value, f.Unit, f.Limit))
			}
		}
	}

	if len(missed) > 0 {
		return errors.New("targets missed: " + strings.Join(missed, "; "))
	}

	return nil
}

// each divides counts by n.
func each(n map[string]int, by float64) map[string]float64 {
	out := map[string]float64{}
	for k, v := range n {
		out[k] = float64(v) / by
	}

	return out
}

// percentile is that of sorted values.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}

	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
