package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

const (
	// crashSites is how many sites are at work at once, which mostly wait: a run
	// takes about a second of a processor and some seconds by the clock.
	crashSites = 3
	// crashPoints is how many kill points are tried of each scenario unless all
	// are.
	crashPoints = 2
	// crashScenarios is how many scenarios are drawn unless points are asked for.
	crashScenarios = 4
)

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

	for _, d := range []*daemon{r.daemon, r.standby} {
		if d == nil {
			continue
		}

		if code := d.stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
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

// pointsWanted is how many kill points are tried of each scenario.
func pointsWanted(t *testing.T) int {
	t.Helper()

	switch s := os.Getenv("OIPO_CRASH"); s {
	case "":
		return crashPoints
	case "full":
		return math.MaxInt
	default:
		return must(strconv.Atoi(s))(t)
	}
}

// chooseScenarios are all scenarios if points are asked for, and some of them
// otherwise: the machine that runs all other tests too has not the time for more.
func chooseScenarios(rng *rand.Rand) []scenario {
	all := scenarios()
	if os.Getenv("OIPO_CRASH") != "" {
		return all
	}

	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	return all[:crashScenarios]
}

// Invariant: a restart at any instant is harmless. For each scenario the calls
// that the daemon makes to the rack and to Omni are counted in an undisturbed
// run; then the daemon is killed at one of them, just before, just after, or
// with the call still on its way, is started again, and must come to exactly
// what was asked for, and leave nothing when all is taken away again.
//
// A few scenarios and points drawn from OIPO_CRASH_SEED are tried; OIPO_CRASH is how
// many points of each of all scenarios, or full for all.
// OIPO_CRASH_SITES is how many sites are at work at once.
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

	sites := crashSites
	if s := os.Getenv("OIPO_CRASH_SITES"); s != "" {
		sites = must(strconv.Atoi(s))(t)
	}

	began := time.Now()
	report := &crashReport{}
	each := pointsWanted(t)
	chosen := chooseScenarios(rand.New(rand.NewPCG(seed, 0)))
	jobs := make(chan func(), len(chosen))

	var workers, counting sync.WaitGroup

	for range sites {
		workers.Go(func() {
			for job := range jobs {
				job()
			}
		})
	}

	drawn := make([][]killPoint, len(chosen))

	for i, sc := range chosen {
		counting.Add(1)

		jobs <- func() {
			defer counting.Done()

			t.Run(sc.name+": undisturbed", func(t *testing.T) { drawn[i] = report.play(t, sc, nil) })
		}
	}

	counting.Wait()

	for i, sc := range chosen {
		all := len(drawn[i])
		drawn[i] = choose(rand.New(rand.NewPCG(seed, uint64(i))), drawn[i], each)

		t.Logf("%s: %d kill points, %d tried", sc.name, all, len(drawn[i]))

		report.points += len(drawn[i])
	}

	for i, sc := range chosen {
		for _, point := range drawn[i] {
			jobs <- func() {
				t.Run(fmt.Sprintf("%s: %s", sc.name, point), func(t *testing.T) { report.play(t, sc, &point) })
			}
		}
	}

	close(jobs)
	workers.Wait()

	t.Logf("%d kill points in %s; %d not reached, as the order of calls varies: %s", report.points,
		time.Since(began).Round(time.Second), report.unreached, strings.Join(report.unreachedNames, "; "))
	t.Logf("%d finalizers left by the SDK and removed by the janitor: %s", report.stuck, strings.Join(report.stuckNames, "; "))
}
