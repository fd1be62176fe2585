package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// moment says when a kill falls, as seen from the call.
type moment string

const (
	// before: the call never reaches its server.
	before moment = "before"
	// after: the call takes effect and its answer is lost.
	after moment = "after"
	// late: the call takes effect when the next process is already at work.
	late moment = "late"
)

// lateBy is how long after the next process was started a late call is let go:
// less than the settling time and the grace for scratch, for which the daemon
// expects such calls.
const lateBy = 500 * time.Millisecond

// killPoint is a call of the daemon at which it is killed. The order of calls
// differs a little from run to run, so a call is known by its name and by how
// many of that name came before.
type killPoint struct {
	when moment
	nth  int
	call string
}

// String is the name of the point in reports and of its test.
func (k killPoint) String() string { return fmt.Sprintf("%s call %d of %s", k.when, k.nth, k.call) }

// callWatch counts the daemon's calls to the rack and to Omni, and kills the
// daemon at the point that it was given.
type callWatch struct {
	// fired is closed when the daemon is dead, again when the next one runs.
	fired, again chan struct{}

	mu     sync.Mutex
	site   *site.Site
	open   bool
	seen   map[string]int
	number map[string]int // by server and number of the call: its place among its like
	point  *killPoint
	victim *daemon
	// struck is the number of the call at which the daemon was killed.
	struck int
}

func newCallWatch(point *killPoint) *callWatch {
	return &callWatch{
		fired: make(chan struct{}), again: make(chan struct{}), point: point,
		seen: map[string]int{}, number: map[string]int{},
	}
}

// observe opens or closes the window in which calls count.
func (w *callWatch) observe(open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.open = open
}

func (w *callWatch) rackBefore(seq int, op string) {
	c, ok := w.of().Rack.Call(seq)
	if !ok || !strings.HasPrefix(c.UserAgent, "omni-infra-provider-oxide/") {
		return
	}

	if w.begins("rack", seq, "rack "+op) {
		panic(http.ErrAbortHandler)
	}
}

func (w *callWatch) rackAfter(seq int, op string) { w.ends("rack", seq, "rack "+op) }

func (w *callWatch) omniBefore(number int, _ string) {
	if name, ok := w.omniCall(number); ok && w.begins("omni", number, name) {
		runtime.Goexit()
	}
}

func (w *callWatch) omniAfter(number int, _ string) {
	if name, ok := w.omniCall(number); ok {
		w.ends("omni", number, name)
	}
}

// omniCall names a call of the daemon by verb and type.
func (w *callWatch) omniCall(number int) (string, bool) {
	c, ok := w.of().Omni.Call(number)
	if !ok || !strings.Contains(c.Identity, "@infra-provider.") {
		return "", false
	}

	kind, _, _ := strings.Cut(c.Type, ".")

	return strings.TrimSpace("omni " + c.Verb + " " + kind), true
}

func (w *callWatch) of() *site.Site {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.site
}

// begins counts a call and kills where it is to be done. drop says that the
// call must come to nothing.
func (w *callWatch) begins(server string, number int, name string) (drop bool) {
	w.mu.Lock()

	if !w.open {
		w.mu.Unlock()

		return false
	}

	w.seen[name]++
	nth := w.seen[name]
	w.number[fmt.Sprint(server, number)] = nth
	hit := w.hits(name, nth, before) || w.hits(name, nth, late)
	victim := w.victim

	w.mu.Unlock()

	if !hit {
		return false
	}

	w.kill(victim, number)

	if w.point.when == before {
		return true
	}

	<-w.again
	time.Sleep(lateBy)

	return false
}

func (w *callWatch) ends(server string, number int, name string) {
	w.mu.Lock()
	hit := w.open && w.hits(name, w.number[fmt.Sprint(server, number)], after)
	victim := w.victim
	w.mu.Unlock()

	if hit {
		w.kill(victim, number)
	}
}

// hits is true once. Held: w.mu.
func (w *callWatch) hits(name string, nth int, when moment) bool {
	return w.point != nil && *w.point == killPoint{when, nth, name} && !w.killed()
}

func (w *callWatch) killed() bool {
	select {
	case <-w.fired:
		return true
	default:
		return false
	}
}

// kill returns when the process is dead.
func (w *callWatch) kill(victim *daemon, number int) {
	_ = victim.cmd.Process.Kill()

	<-victim.done

	w.mu.Lock()
	w.struck = number
	w.mu.Unlock()

	close(w.fired)
}

// dropped says whether the call at which the daemon was killed came to nothing.
func (w *callWatch) dropped() bool {
	w.mu.Lock()
	struck := w.struck
	w.mu.Unlock()

	if strings.HasPrefix(w.point.call, "rack ") {
		c, ok := w.site.Rack.Call(struck)

		return ok && !c.Done
	}

	c, ok := w.site.Omni.Call(struck)

	return ok && c.Code == ""
}

// points are all points at which the counted calls can be cut off.
func (w *callWatch) points() []killPoint {
	w.mu.Lock()
	defer w.mu.Unlock()

	var all []killPoint

	for _, name := range slices.Sorted(maps.Keys(w.seen)) {
		for nth := range w.seen[name] {
			for _, when := range moments(name) {
				all = append(all, killPoint{when, nth + 1, name})
			}
		}
	}

	return all
}

// moments are those at which a kill makes a difference: a watch is answered all
// the time, and only what changes something can do so late.
func moments(name string) []moment {
	switch {
	case strings.HasPrefix(name, "omni Watch"):
		return []moment{before}
	case strings.HasPrefix(name, "rack ") && changes(name):
		return []moment{before, after, late}
	default:
		return []moment{before, after}
	}
}

// changes tells a call that changes something from one that only looks.
func changes(name string) bool {
	for _, look := range []string{"_view", "_list", "ping", "utilization", "omni Watch", "omni Get", "omni List"} {
		if strings.Contains(name, look) {
			return false
		}
	}

	return true
}

// choose draws n points, most of them at calls that change something, and at
// as many different calls as there are.
func choose(rng *rand.Rand, all []killPoint, n int) []killPoint {
	type drawn struct {
		killPoint
		rank int
	}

	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	times := map[string]int{}
	ranked := make([]drawn, 0, len(all))

	for _, p := range all {
		rank := times[p.call]
		if !changes(p.call) {
			rank = 3*rank + rng.IntN(4)
		}

		times[p.call]++
		ranked = append(ranked, drawn{p, rank})
	}

	slices.SortStableFunc(ranked, func(a, b drawn) int { return cmp.Compare(a.rank, b.rank) })

	var out []killPoint
	for _, r := range ranked[:min(n, len(ranked))] {
		out = append(out, r.killPoint)
	}

	return out
}
