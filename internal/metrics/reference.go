package metrics

import (
	"fmt"
	"strings"
)

// Reference is the page on all metrics, in Markdown.
func Reference() string {
	var b strings.Builder

	b.WriteString(`# Metrics

The daemon serves these metrics in Prometheus' form at ` + "`/metrics`" + ` of ` + "`--health-address`" + `, beside those of Go
and of the process (` + "`go_*`, `process_*`" + `). No label names a request, an instance or an image. This page is made from the
code by ` + "`make generate`" + `.

Replicas with one provider ID share the work: of the gauges on requests, machines and objects only those of the one
that holds the lease are not 0, so add up all replicas. Gauges on requests and machines are of the last round, at most
about a minute ago.

[The dashboard](../../hack/grafana/omni-infra-provider-oxide.json) is for Grafana 9 or later,
[the alerts](../../hack/prometheus/alerts.yaml) are rules for Prometheus.

| Metric | Kind | Labels | Meaning |
|---|---|---|---|
`)

	for _, d := range catalogue {
		var labels []string

		for _, l := range d.Labels {
			text := "`" + l.Name + "`: " + l.Open
			if l.Open == "" {
				text = "`" + l.Name + "`: " + strings.Join(l.Values, ", ")
			}

			labels = append(labels, text)
		}

		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, strings.Join(labels, "; "), d.Help)
	}

	return b.String()
}
