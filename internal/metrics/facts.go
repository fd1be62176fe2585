package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Facts are what is true at one moment. Keys that a map lacks count as 0.
type Facts struct {
	Ready bool
	// Needs says of each whether it is met; Notes are the subjects of all notes.
	Needs map[string]bool
	Notes []string

	// Stages and Steps count requests.
	Stages, Steps map[string]int
	// RemovalsLater and RemovalsMend count removals that wait.
	RemovalsLater, RemovalsMend int

	QueueLength, Workers, Busy                int
	CreatesTaken, CreatesLimit, CreatesQueued int

	// Jobs counts image jobs by phase, Instances by state, Machines by finding,
	// Orphans by kind, Odd stored states by oddity.
	Jobs, Instances, Machines, Orphans, Odd map[string]int

	Brake    bool
	LastLook time.Time

	Holding bool
	Term    uint64
}

// factsCollector reads the facts at each scrape.
type factsCollector struct {
	read atomic.Pointer[func() Facts]
}

// Describe implements prometheus.Collector. Describing nothing makes it one whose
// series are checked at each scrape.
func (c *factsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *factsCollector) Collect(out chan<- prometheus.Metric) {
	var f Facts
	if read := c.read.Load(); read != nil {
		f = (*read)()
	}

	one := func(name string, v float64, labels ...string) {
		d := definition(name)
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, d.Help, d.labels(), nil), prometheus.GaugeValue, v, labels...)
	}
	each := func(name string, counts map[string]int) {
		for _, v := range definition(name).Labels[0].Values {
			one(name, float64(counts[v]), v)
		}
	}

	one(build, 1, buildInfo()...)
	one(ready, truth(f.Ready))

	for need, met := range f.Needs {
		one(needs, truth(met), need)
	}

	for _, subject := range f.Notes {
		one(notes, 1, subject)
	}

	each(requests, f.Stages)
	each(atStep, f.Steps)
	one(removals, float64(f.RemovalsLater), "later")
	one(removals, float64(f.RemovalsMend), "mend")
	one(queueLength, float64(f.QueueLength))
	one(workers, float64(f.Workers))
	one(busy, float64(f.Busy))
	one(creates, float64(f.CreatesTaken))
	one(createLimit, float64(f.CreatesLimit))
	one(createQueue, float64(f.CreatesQueued))
	each(imageJobs, f.Jobs)
	each(instances, f.Instances)
	each(machines, f.Machines)
	each(orphans, f.Orphans)
	each(oddStates, f.Odd)
	one(brake, truth(f.Brake))
	one(leaseHeld, truth(f.Holding))
	one(leaseTerm, float64(f.Term))

	if f.LastLook.IsZero() {
		one(lastLook, 0)
	} else {
		one(lastLook, float64(f.LastLook.UnixMilli())/1000)
	}
}

func definition(name string) Definition {
	for _, d := range catalogue {
		if d.Name == name {
			return d
		}
	}

	panic("no such metric: " + name)
}

func truth(b bool) float64 {
	if b {
		return 1
	}

	return 0
}
