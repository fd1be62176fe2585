package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

const (
	// crashSites is how many sites are at work at once.
	crashSites = 3
	// crashPoints is how many kill points are tried of each scenario unless all
	// are.
	crashPoints = 4
)

// scenario is something that Omni asks for and the daemon may be killed at.
type scenario struct {
	name string
	site site.Config
	// replicas has a second daemon stand by, which takes over instead of a restart.
	replicas bool
	// before brings the site to where the scenario begins.
	before func(r *crashRun)
	// run asks for something and waits until it is there, killed or not.
	run func(r *crashRun)
}

func scenarios() []scenario {
	return []scenario{
		{
			name:   "first machine",
			before: func(*crashRun) {},
			run: func(r *crashRun) {
				r.begin()
				r.register()
				r.set("workers", crashProvider, 1)
				r.rest([]int{1}, plain("workers", 1))
			},
		},
		{
			name:     "two replicas",
			replicas: true,
			before:   func(r *crashRun) { r.begin(); r.register() },
			run: func(r *crashRun) {
				r.set("workers", crashProvider, 2)
				r.rest([]int{1}, plain("workers", 2))
				r.set("workers", crashProvider, 1)
				r.rest([]int{1}, plain("workers", 1))
			},
		},
		{
			name:   "second machine",
			before: func(r *crashRun) { r.beginWith(1) },
			run: func(r *crashRun) {
				r.set("workers", crashProvider, 2)
				r.rest([]int{1}, plain("workers", 2))
			},
		},
		{
			name:   "scale down",
			before: func(r *crashRun) { r.beginWith(2) },
			run: func(r *crashRun) {
				r.set("workers", crashProvider, 1)
				r.rest([]int{1}, plain("workers", 1))
			},
		},
		{
			name:   "teardown during upload",
			site:   site.Config{Factory: factory.Config{Rate: 4 << 20}},
			before: func(r *crashRun) { r.begin(); r.register() },
			run: func(r *crashRun) {
				r.set("workers", crashProvider, 1)
				r.until("the upload to be under way", func() bool { return r.Rack.CallCount("disk_bulk_write_import") > 3 })
				r.set("workers", crashProvider, 0)
				// The upload goes on for others; after a kill nobody waits for it.
				r.rest([]int{0, 1})

				// Nothing that it left may be in the way of the next one.
				r.calls.observe(false)
				r.set("workers", crashProvider, 1)
				r.rest([]int{1}, plain("workers", 1))
			},
		},
		{
			name:   "disks and interfaces",
			before: func(r *crashRun) { r.addSubnet("storage"); r.beginWith(1) },
			run: func(r *crashRun) {
				r.set("wide", crashProvider, 1, func(s *specs.MachineRequestSetSpec) {
					s.ProviderData = crashClass("disks: [{size: 2}, {size: 3, type: local}]\n" +
						"network_interfaces: [{subnet_name: default}, {subnet_name: storage}]\n")
				})
				r.rest([]int{1}, plain("workers", 1),
					machines{set: "wide", count: 1, disks: map[string]int{"boot": 10, "data0": 2, "data1": 3}, nics: 2})
			},
		},
	}
}

func (r *crashRun) register() {
	r.until("the provider to register", func() bool {
		ok, err := r.Operator.ProviderRegistered(r.t.Context(), crashProvider)

		return err == nil && ok
	})
}

// beginWith starts the daemon and waits for n machines.
func (r *crashRun) beginWith(n int) {
	r.begin()
	r.register()
	r.set("workers", crashProvider, int32(n))
	r.rest([]int{1}, plain("workers", n))
}

func (r *crashRun) addSubnet(name string) {
	must(r.Operator.Rack().VpcSubnetCreate(r.t.Context(), oxide.VpcSubnetCreateParams{
		Project: oxide.NameOrId(site.Project), Vpc: "default",
		Body: &oxide.VpcSubnetCreate{Name: oxide.Name(name), Description: "A second one.", Ipv4Block: "172.30.4.0/22"},
	}))(r.t)
}

// crashReport counts over all runs.
type crashReport struct {
	mu                         sync.Mutex
	points, unreached, stuck   int
	unreachedNames, stuckNames []string
}

// play runs a scenario to its end, killing the daemon at the point if there is
// one, and then has everything removed.
func (c *crashReport) play(t *testing.T, sc scenario, point *killPoint) []killPoint {
	t.Helper()

	r := newCrashRun(t, sc, point)
	sc.before(r)
	r.calls.observe(true)
	sc.run(r)
	r.calls.observe(false)

	for _, set := range []string{"workers", "wide"} {
		r.set(set, crashProvider, 0)
	}

	r.gone()

	if code := r.daemon.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	if r.restarted && r.calls.dropped() != (point.when == before) {
		t.Errorf("the kill was not %s the call", point.when)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	if point != nil && !r.restarted {
		c.unreached++
		c.unreachedNames = append(c.unreachedNames, sc.name+": "+point.String())
	}

	if n := r.released(); n > 0 {
		c.stuck += n
		c.stuckNames = append(c.stuckNames, fmt.Sprint(sc.name, ": ", point))
	}

	return r.calls.points()
}

// Invariant: a restart at any instant is harmless. For each scenario the calls
// that the daemon makes to the rack and to Omni are counted in an undisturbed
// run; then the daemon is killed at one of them, just before, just after, or
// with the call still on its way, is started again, and must come to exactly
// what was asked for, and leave nothing when all is taken away again.
//
// A few points drawn from OIPO_CRASH_SEED are tried; OIPO_CRASH=full tries all.
// One point alone, by the name that a failure gives:
//
//	OIPO_CRASH=full go test -run 'TestKillsAtAnyCall/(undisturbed|scale_down:_after_call_1_of_rack_instance_stop$)'
func TestKillsAtAnyCall(t *testing.T) {
	t.Parallel()

	if err := provider.Bind(crashProvider); err != nil {
		t.Fatal(err)
	}

	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("OIPO_CRASH_SEED"); s != "" {
		seed = must(strconv.ParseUint(s, 10, 64))(t)
	}

	t.Logf("OIPO_CRASH_SEED=%d", seed)

	report := &crashReport{}
	full := os.Getenv("OIPO_CRASH") == "full"
	jobs := make(chan func(), len(scenarios()))

	var workers, counting sync.WaitGroup

	for range crashSites {
		workers.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}

	drawn := make([][]killPoint, len(scenarios()))

	for i, sc := range scenarios() {
		counting.Add(1)

		jobs <- func() {
			defer counting.Done()

			t.Run(sc.name+": undisturbed", func(t *testing.T) { drawn[i] = report.play(t, sc, nil) })
		}
	}

	counting.Wait()

	for i, sc := range scenarios() {
		all := len(drawn[i])
		if !full {
			drawn[i] = choose(rand.New(rand.NewPCG(seed, uint64(i))), drawn[i], crashPoints)
		}

		t.Logf("%s: %d kill points, %d tried", sc.name, all, len(drawn[i]))

		report.points += len(drawn[i])
	}

	for i, sc := range scenarios() {
		for _, point := range drawn[i] {
			jobs <- func() {
				t.Run(fmt.Sprintf("%s: %s", sc.name, point), func(t *testing.T) { report.play(t, sc, &point) })
			}
		}
	}

	close(jobs)
	workers.Wait()

	t.Logf("%d kill points; %d not reached, as the order of calls varies: %s", report.points, report.unreached,
		strings.Join(report.unreachedNames, "; "))
	t.Logf("%d finalizers left by the SDK and removed by the janitor: %s", report.stuck, strings.Join(report.stuckNames, "; "))
}
