package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// schedule is when each machine is asked for, after the beginning.
func (a arrival) schedule(n int) []time.Duration {
	at := make([]time.Duration, n)

	switch a.how {
	case "waves":
		for i := range at {
			at[i] = time.Duration(i*a.waves/n) * a.every
		}
	case "poisson":
		random := rand.New(rand.NewPCG(a.seed, 1)) //nolint:gosec // a load is no secret
		t := 0.0

		for i := range at {
			t += random.ExpFloat64() / a.rate
			at[i] = time.Duration(t * float64(time.Second))
		}
	}

	return at
}

// ideal is when each machine would run if a provider cost nothing: creates are made
// in the order of asking, as many at once as may be, and a machine takes its start
// and the two calls of it after that.
func (o *loadOptions) ideal(at []time.Duration) []time.Duration {
	free := make([]time.Duration, o.creates)
	out := make([]time.Duration, len(at))

	for i, asked := range at {
		slices.Sort(free)
		free[0] = max(free[0], asked) + o.create
		out[i] = free[0] + o.start + 2*o.call
	}

	return out
}

func seconds(all []time.Duration) []float64 {
	out := make([]float64, len(all))
	for i, d := range all {
		out[i] = d.Seconds()
	}

	slices.Sort(out)

	return out
}

// maxOverBound is by how much all machines of a burst may take longer than theory
// has it.
const maxOverBound = 1.3

func (s *loadSite) measureArrival(ctx context.Context) (loadResult, error) {
	r := loadResult{Row: rowArrive, Conditions: s.conditions(), About: fmt.Sprintf(
		"%d requests arrive (%s), the image is there; calls, writes and waits are for each machine up to provisioned; real time, the daemon is a process",
		s.o.machines, s.o.arrival.how)}

	at := s.o.arrival.schedule(s.o.machines)
	ideal := s.o.ideal(at)

	idle, err := s.daemon.anonymous()
	if err != nil {
		return r, err
	}

	before, err := s.daemon.cpu()
	if err != nil {
		return r, err
	}

	s.rackCalls.take()
	s.omniCalls.take()

	peak := s.daemon.peak()
	began := time.Now()

	if err := s.arrive(ctx, began, at, ideal[len(ideal)-1]); err != nil {
		peak()

		return r, err
	}

	wall := time.Since(began)
	rack, _ := s.rackCalls.take()
	omni, _ := s.omniCalls.take()

	after, err := s.daemon.cpu()
	if err != nil {
		return r, err
	}

	n := float64(s.o.machines)
	r.bounded("all running", wall.Seconds(), "s", slices.Max(ideal).Seconds(), maxOverBound)
	r.add("throughput", n/wall.Seconds()*60, "machines/min", 0)
	s.percentiles(&r, at, ideal)

	if err := s.order(ctx, &r); err != nil {
		return r, err
	}

	r.add("rack calls", float64(sumOfCalls(rack))/n, "calls/machine", maxRackCalls)
	r.add("Omni calls", float64(sumOfCalls(omni))/n, "calls/machine", 0)
	r.add("Omni writes", float64(sumOfCalls(writes(omni)))/n, "writes/machine", maxOmniWrites)
	r.add("processor", (after-before).Seconds()/n, "s/machine", 0)
	r.add("RssAnon idle before", mib(idle), "MiB", 0)
	r.add("RssAnon peak", mib(peak()), "MiB", 0)
	r.RackCalls, r.OmniCalls, r.Waits = each(rack, n), each(omni, n), s.waits(n)

	return r, nil
}

const (
	// maxRackCalls and maxOmniWrites are for each machine up to provisioned.
	maxRackCalls  = 8
	maxOmniWrites = 20
)

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// writes are the calls to Omni that change something.
func writes(n map[string]int) map[string]int {
	out := maps.Clone(n)
	maps.DeleteFunc(out, func(k string, _ int) bool {
		verb, _, _ := strings.Cut(k, " ")

		return !slices.Contains([]string{"Create", "Update", "Destroy", "Teardown", "TeardownAndDestroy"}, verb)
	})

	return out
}

// arrive asks for all machines when their time has come, and waits until they run.
func (s *loadSite) arrive(ctx context.Context, began time.Time, at []time.Duration, ideal time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)

	var churning sync.WaitGroup

	defer churning.Wait()
	defer cancel()

	if s.o.arrival.churn > 0 {
		churning.Go(func() { s.churn(ctx) })
	}

	for n, after := range at {
		if wait := time.Until(began.Add(after)); wait > 0 {
			if err := rest(ctx, wait); err != nil {
				return err
			}
		}

		id, class := s.machineID(n)
		if err := s.fleet.ask(ctx, id, class); err != nil {
			return err
		}
	}

	return s.until(ctx, 6*ideal+5*time.Minute, "all machines to run", func() bool {
		return s.fleet.count(func(m *loadMachine) bool { return !m.provisioned.IsZero() || !m.removed.IsZero() }) >= s.fleet.asked()
	})
}

// churn removes a machine at random, and asks for another, at even times.
func (s *loadSite) churn(ctx context.Context) {
	random := rand.New(rand.NewPCG(s.o.arrival.seed, 2)) //nolint:gosec // a load is no secret

	for n := 0; rest(ctx, time.Duration(float64(time.Minute)/s.o.arrival.churn)) == nil; n++ {
		var running []string

		for id, m := range s.fleet.seen() {
			if !m.provisioned.IsZero() && m.removed.IsZero() {
				running = append(running, id)
			}
		}

		if len(running) == 0 {
			continue
		}

		slices.Sort(running)

		if err := s.fleet.remove(ctx, running[random.IntN(len(running))]); err != nil {
			return
		}

		if err := s.fleet.ask(ctx, fmt.Sprintf("churn-%05d", n), classIn(n%s.o.projects)); err != nil {
			return
		}
	}
}

// percentiles compares how long machines took from asking to running with how long
// they would have taken at best.
func (s *loadSite) percentiles(r *loadResult, at, ideal []time.Duration) {
	var took, best []time.Duration

	seen := s.fleet.seen()

	for n := range at {
		id, _ := s.machineID(n)
		m := seen[id]
		best = append(best, ideal[n]-at[n])
		took = append(took, m.provisioned.Sub(m.asked))
	}

	values, bounds := seconds(took), seconds(best)
	for _, p := range []float64{0.50, 0.95, 0.99} {
		r.bounded(fmt.Sprintf("time to running, p%.0f", 100*p), percentile(values, p), "s", percentile(bounds, p), 0)
	}
}

// order compares the order in which instances were made with that of asking.
func (s *loadSite) order(ctx context.Context, r *loadResult) error {
	all, err := s.instances(ctx)
	if err != nil {
		return err
	}

	all = slices.DeleteFunc(all, func(i oxide.Instance) bool { return !strings.HasPrefix(string(i.Name), "load-") })
	slices.SortFunc(all, func(a, b oxide.Instance) int { return a.TimeCreated.Compare(*b.TimeCreated) })

	most := 0

	for rank, i := range all {
		var asked int
		if _, err := fmt.Sscanf(string(i.Name), "load-%d", &asked); err != nil {
			return err
		}

		most = max(most, asked-rank, rank-asked)
	}

	limit := 0.0
	if s.o.arrival.churn == 0 {
		limit = float64(s.o.workers)
	}

	r.add("created out of order, at most", float64(most), "places", limit)

	return nil
}

// instances are those of all projects, by a client of our own.
func (s *loadSite) instances(ctx context.Context) ([]oxide.Instance, error) {
	var all []oxide.Instance

	for n := range s.o.projects {
		some, err := s.site.Operator.Rack().InstanceListAllPages(ctx, oxide.InstanceListParams{Project: oxide.NameOrId(projectName(n))})
		if err != nil {
			return nil, err
		}

		all = append(all, some...)
	}

	return all, nil
}

// waits are how long a machine was in each state, by the text on Omni's page.
func (s *loadSite) waits(n float64) map[string]float64 {
	out := map[string]float64{}

	for _, m := range s.fleet.seen() {
		for reason, d := range m.waits {
			out[reason] += d.Seconds() / n
		}
	}

	return out
}

// The limits of a daemon at rest.
const (
	maxIdleCalls = 6.0   // a minute
	maxIdleCPU   = 0.005 // seconds a second
)

// maxIdleMemory is in MiB.
func maxIdleMemory(machines int) float64 {
	if machines <= 1000 {
		return 100
	}

	return 100 + float64(machines-1000)*150/4000
}

func (s *loadSite) measureIdle(ctx context.Context) (loadResult, error) {
	r := loadResult{Row: rowIdle, Conditions: s.conditions(), About: fmt.Sprintf(
		"%d machines run and nothing happens for %s; calls and writes are those of a minute; real time, the daemon is a process", s.o.machines, s.o.idle)}

	// What was begun before has ended, and the machines have joined.
	if err := rest(ctx, 30*time.Second); err != nil {
		return r, err
	}

	s.rackCalls.take()
	s.omniCalls.take()

	before, err := s.daemon.cpu()
	if err != nil {
		return r, err
	}

	peak := s.daemon.peak()
	failed := rest(ctx, s.o.idle)
	most := peak()

	if failed != nil {
		return r, failed
	}

	after, err := s.daemon.cpu()
	if err != nil {
		return r, err
	}

	rack, _ := s.rackCalls.take()
	omni, _ := s.omniCalls.take()
	minutes := s.o.idle.Minutes()

	r.add("rack calls", float64(sumOfCalls(rack))/minutes, "calls/min", maxIdleCalls)
	r.add("Omni writes", float64(sumOfCalls(writes(omni)))/minutes, "writes/min", 0)
	r.none("of them other than heartbeat, lease and run", float64(sumOfCalls(newsIn(omni)))/minutes, "writes/min")
	r.add("processor", (after-before).Seconds()/s.o.idle.Seconds(), "s/s", maxIdleCPU)
	r.add("RssAnon", mib(most), "MiB", maxIdleMemory(s.o.machines))
	r.RackCalls, r.OmniCalls = each(rack, minutes), each(omni, minutes)

	return r, nil
}

// newsIn are the writes that tell something: all but the heartbeat of the provider,
// the lease and the renewal of the run.
func newsIn(n map[string]int) map[string]int {
	out := writes(n)
	maps.DeleteFunc(out, func(k string, _ int) bool {
		_, kind, _ := strings.Cut(k, " ")

		return slices.Contains(steadyKinds(), kind)
	})

	return out
}

// steadyKinds are the types that are written at even times.
func steadyKinds() []string {
	return []string{"InfraProviderHealthStatuses", "Lease", "ImportRun"}
}

const (
	maxReady        = 5 * time.Second
	maxRestartCalls = 30
	// watchedRestart is for how long a daemon is watched after it is ready.
	watchedRestart = 20 * time.Second
)

func (s *loadSite) measureRestart(ctx context.Context) (loadResult, error) {
	r := loadResult{Row: rowRestart, Conditions: s.conditions(), About: fmt.Sprintf(
		"the daemon ends by SIGTERM and starts again with %d machines; calls and writes are all up to %s after it is ready; real time, the daemon is a process",
		s.o.machines, watchedRestart)}

	if err := s.daemon.end(syscall.SIGTERM); err != nil {
		return r, err
	}

	s.rackCalls.take()
	s.omniCalls.take()

	if err := s.startDaemon(ctx); err != nil {
		return r, err
	}

	ready := time.Now()

	_, first := s.omniCalls.now()
	if _, rack := s.rackCalls.now(); rack.Before(first) && !rack.IsZero() {
		first = rack
	}

	if err := rest(ctx, watchedRestart); err != nil {
		return r, err
	}

	rack, _ := s.rackCalls.take()
	omni, _ := s.omniCalls.take()

	cpu, err := s.daemon.cpu()
	if err != nil {
		return r, err
	}

	memory, err := s.daemon.anonymous()
	if err != nil {
		return r, err
	}

	r.add("start to first call", first.Sub(s.daemon.began).Seconds(), "s", 0)
	r.add("first call to ready", ready.Sub(first).Seconds(), "s", maxReady.Seconds())
	r.add("rack calls", float64(sumOfCalls(rack)), "calls", maxRestartCalls)
	r.none("writes of machines", float64(sumOfCalls(ofMachines(omni))), "writes")
	r.add("Omni writes", float64(sumOfCalls(writes(omni))), "writes", 0)
	r.add("processor", cpu.Seconds(), "s", 0)
	r.add("RssAnon", mib(memory), "MiB", 0)
	r.RackCalls, r.OmniCalls = each(rack, 1), each(omni, 1)

	return r, nil
}

// ofMachines are the writes about requests and their machines.
func ofMachines(n map[string]int) map[string]int {
	out := writes(n)
	maps.DeleteFunc(out, func(k string, _ int) bool {
		_, kind, _ := strings.Cut(k, " ")

		return !slices.Contains([]string{"MachineRequests", "MachineRequestStatuses", "ConfigPatchRequests", "Instance"}, kind)
	})

	return out
}
