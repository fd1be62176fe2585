package provider

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// weekHours and weekBatch are how long the simulated time is, and how many machines
// come and go at once, unless OIPO_WEEK_HOURS and OIPO_WEEK_BATCH say it.
const (
	weekHours = 2
	weekBatch = 2
)

// numberIn is a positive number in the environment.
func numberIn(t *testing.T, name string, otherwise int) int {
	t.Helper()

	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, want a positive number", name, text)
	}

	return n
}

// weight is what a process holds at rest.
type weight struct {
	goroutines  int
	connections int64
	heap        uint64
}

func (b *bench) weigh() weight {
	b.pass(90 * time.Second)
	runtime.GC()

	var m runtime.MemStats

	runtime.ReadMemStats(&m)

	return weight{runtime.NumGoroutine(), b.net.open.Load(), m.HeapAlloc}
}

// Rule: a provider goes on for a week without a person. Its streams are cut every
// 15 to 30 minutes, its key and its token are rotated and the old ones revoked, the
// rack has two maintenance windows, and machines come and go all the time: no
// request is lost, and the process weighs at the end what it did at the beginning.
func TestAWeekPassesWithoutAPerson(t *testing.T) { //nolint:paralleltest // it counts the process's goroutines
	length := time.Duration(numberIn(t, "OIPO_WEEK_HOURS", weekHours)) * time.Hour
	batch := numberIn(t, "OIPO_WEEK_BATCH", weekBatch)

	bubble(t, func(t *testing.T, b *bench) {
		s, follow := b.follow()
		s.oxide.Store(&OxideAccess{Host: "http://rack.test", Token: simrack.DefaultToken})

		d := b.serve(leased, follow)
		b.untilReady(d)

		operator := b.operator()
		random := rand.New(rand.NewPCG(1, 2))
		began := time.Now()
		// yet is how much of what a week brings has not come.
		yet := 0
		due := func(part float64) func() bool {
			done := false
			yet++

			return func() bool {
				if done || time.Since(began) < time.Duration(part*float64(length)) {
					return false
				}

				done = true
				yet--

				return true
			}
		}
		keyDue := []func() bool{due(0.2), due(0.7)}
		tokenDue := []func() bool{due(0.3), due(0.8)}
		maintenanceDue := []func() bool{due(0.4), due(0.6)}
		token, machines, cuts := simrack.DefaultToken, 0, 0

		said := map[string]int{}

		var first weight

		for round := 0; time.Since(began) < length || yet > 0; round++ {
			for i := range batch {
				b.ask(fmt.Sprintf("week-%d-%d", round, i))
			}

			b.pass(time.Duration(random.Int64N(int64(20 * time.Second))))
			b.omni.CutStreams()

			cuts++

			for _, is := range maintenanceDue {
				if is() {
					b.fault(simrack.Fault{Condition: simrack.ConditionMaintenance, Sagas: simrack.Duration(30 * time.Minute), Away: simrack.Duration(10 * time.Minute)})
				}
			}

			for i := range batch {
				b.untilStage(fmt.Sprintf("week-%d-%d", round, i), stageProvisioned)
			}

			for _, is := range keyDue {
				if is() {
					b.ok(b.omni.RevokeKeys(t.Context(), "infra-provider:"+testID))

					fresh := b.mint(30 * 24 * time.Hour)
					s.key.Store(&fresh)
				}
			}

			for _, is := range tokenDue {
				if is() {
					fresh := fmt.Sprintf("oxide-token-week-%d", round)
					b.sim.SetToken(simrack.Token{Value: fresh, User: "provider"})
					b.sim.RevokeToken(token)
					s.oxide.Store(&OxideAccess{Host: "http://rack.test", Token: fresh})

					token = fresh
				}
			}

			for i := range batch {
				b.remove(fmt.Sprintf("week-%d-%d", round, i))
			}

			for i := range batch {
				b.untilReleased(fmt.Sprintf("week-%d-%d", round, i))
			}

			machines += batch

			// The logs of the test and of Omni are no part of what the daemon holds.
			b.omni.ForgetCalls()

			for _, e := range b.logs.TakeAll() {
				said[e.Message]++
			}

			if round == 1 {
				first = b.weigh()
			}

			b.pass(15*time.Minute + time.Duration(random.Int64N(int64(15*time.Minute))))
		}

		b.until("the daemon to be ready", d.board.Ready)

		last := b.weigh()
		t.Logf("%s with %d machines, %d cuts: at first %+v, at last %+v", time.Since(began).Round(time.Minute), machines, cuts, first, last)

		for _, e := range b.logs.TakeAll() {
			said[e.Message]++
		}

		for _, what := range []string{"took a new key for Omni", "took a new token for the rack"} {
			if said[what] != 2 {
				t.Errorf("said %d times that it %s", said[what], what)
			}
		}

		if last.goroutines > first.goroutines+10 || last.connections > first.connections+2 {
			t.Error("goroutines or connections have grown")
		}

		// The simulators remember what was: their log of calls and what was deleted.
		if grown := int64(last.heap) - int64(first.heap); grown > 24<<20+int64(machines)*32<<10 {
			t.Errorf("the heap has grown by %d MiB", grown>>20)
		}

		select {
		case <-d.done:
			t.Errorf("the daemon ended: %v", d.err)
		default:
		}

		b.wantNothingIn(operator)
	}, func(s *setup) { s.rack.Sleds = simrack.DefaultSleds(8) })
}
