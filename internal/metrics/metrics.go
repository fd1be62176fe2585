// Package metrics is what the daemon counts, for Prometheus.
//
// Whoever does something worth counting is handed a *Metrics as a small interface
// of its own, and says so when it happens. What is true at one moment, such as the
// requests by stage, is read when Prometheus asks: see Facts.
//
// No label names a request, an instance or an image: what is told of one of them
// stands in its status and in the log.
package metrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// Metrics are the counters of one process. Its methods are safe for concurrent
// use.
type Metrics struct {
	registry *prometheus.Registry
	facts    *factsCollector

	rackCalls    *prometheus.CounterVec
	rackDuration *prometheus.HistogramVec
	steps        *prometheus.HistogramVec
	retries      *prometheus.CounterVec
	provisioned  *prometheus.HistogramVec
	removed      *prometheus.HistogramVec
	panics       *prometheus.CounterVec
	uploads      *prometheus.CounterVec
	uploadTime   *prometheus.HistogramVec
	written      *prometheus.CounterVec
	skipped      *prometheus.CounterVec
	janitor      *prometheus.CounterVec
	lease        *prometheus.CounterVec
	starts       *prometheus.CounterVec
	links        *prometheus.CounterVec
}

// New makes them, all at zero.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), facts: &factsCollector{}}

	counters := map[string]**prometheus.CounterVec{
		rackCalls: &m.rackCalls, retries: &m.retries, panics: &m.panics, uploads: &m.uploads, written: &m.written,
		skipped: &m.skipped, janitorActions: &m.janitor, leaseEvents: &m.lease, machineStarts: &m.starts, omniLinks: &m.links,
	}
	histograms := map[string]**prometheus.HistogramVec{
		rackDuration: &m.rackDuration, stepDuration: &m.steps, provisionTime: &m.provisioned, removalTime: &m.removed,
		uploadTime: &m.uploadTime,
	}

	for _, d := range catalogue {
		switch {
		case counters[d.Name] != nil:
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.labels())
			m.registry.MustRegister(v)

			*counters[d.Name] = v
		case histograms[d.Name] != nil:
			v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.buckets}, d.labels())
			m.registry.MustRegister(v)

			*histograms[d.Name] = v
		}

		// A series that is there from the start has a rate from its first event on.
		for _, labels := range d.atStart() {
			switch {
			case counters[d.Name] != nil:
				(*counters[d.Name]).WithLabelValues(labels...)
			case histograms[d.Name] != nil:
				(*histograms[d.Name]).WithLabelValues(labels...)
			}
		}
	}

	m.registry.MustRegister(m.facts, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	return m
}

// Gather implements prometheus.Gatherer.
func (m *Metrics) Gather() ([]*Family, error) { return m.registry.Gather() }

// Handler serves them in whatever form of Prometheus' the client asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Read has f asked for the facts at each scrape. It must not block for long.
func (m *Metrics) Read(f func() Facts) { m.facts.read.Store(&f) }

// RackCall counts one request to the rack: what was being done, as in error texts,
// and the class of the outcome.
func (m *Metrics) RackCall(doing, result string, took time.Duration) {
	m.rackCalls.WithLabelValues(doing, result).Inc()
	m.rackDuration.WithLabelValues(doing).Observe(took.Seconds())
}

// Step counts one run of a step.
func (m *Metrics) Step(step, result string, took time.Duration) {
	m.steps.WithLabelValues(step, result).Observe(took.Seconds())
}

// Retry counts something that is done again later, and the class of its cause.
func (m *Metrics) Retry(what, class string) { m.retries.WithLabelValues(what, class).Inc() }

// Provisioned counts a request that is done, from its plan on.
func (m *Metrics) Provisioned(took time.Duration) {
	m.provisioned.WithLabelValues().Observe(took.Seconds())
}

// Removed counts a machine that was removed, from the first try on.
func (m *Metrics) Removed(took time.Duration) { m.removed.WithLabelValues().Observe(took.Seconds()) }

// Panicked counts a step or a teardown that ended in a panic.
func (m *Metrics) Panicked() { m.panics.WithLabelValues().Inc() }

// Uploaded counts one try at bringing an image, from opening it to the end.
func (m *Metrics) Uploaded(result string, took time.Duration) {
	m.uploads.WithLabelValues(result).Inc()
	m.uploadTime.WithLabelValues(result).Observe(took.Seconds())
}

// Wrote counts raw bytes that the rack has taken.
func (m *Metrics) Wrote(bytes int) { m.written.WithLabelValues().Add(float64(bytes)) }

// Skipped counts raw bytes that were zeros and so were not sent.
func (m *Metrics) Skipped(bytes int) { m.skipped.WithLabelValues().Add(float64(bytes)) }

// Janitor counts something that the janitor did.
func (m *Metrics) Janitor(action, kind string) { m.janitor.WithLabelValues(action, kind).Inc() }

// Lease counts what happened to the lease.
func (m *Metrics) Lease(event string) { m.lease.WithLabelValues(event).Inc() }

// MachineStart counts a start of a machine that was found stopped.
func (m *Metrics) MachineStart(result string) { m.starts.WithLabelValues(result).Inc() }

// LinkEnded counts a link to Omni that ended, and why.
func (m *Metrics) LinkEnded(cause string) {
	m.links.WithLabelValues(strings.ReplaceAll(cause, " ", "_")).Inc()
}

func buildInfo() []string {
	i := version.Get()

	return []string{i.Version, i.Commit, i.Go, version.OxideAPIVersion}
}
