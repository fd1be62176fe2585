package main

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// lateBy is how long after the next process was started a late call is let go:
// less than the settling time and the grace for scratch, for which the daemon
// expects such calls.
const lateBy = 500 * time.Millisecond

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
	victim *daemon // nil while nothing is to be counted or killed
	// aimed is true from just before the kill.
	aimed bool
	// struck is the number of the call at which the daemon was killed.
	struck int
	// next is what the next call of an operation of the rack sets off.
	next map[string]func()

	rules *rules
}

func newCallWatch(point *killPoint) *callWatch {
	return &callWatch{
		fired: make(chan struct{}), again: make(chan struct{}), point: point,
		seen: map[string]int{}, number: map[string]int{}, next: map[string]func(){},
	}
}

// aim sets the process that is killed.
func (w *callWatch) aim(victim *daemon) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.victim = victim
}

// observe opens or closes the window in which calls count.
func (w *callWatch) observe(open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.open = open
}

// once has the daemon's next call of an operation of the rack set something off
// before it is done.
func (w *callWatch) once(op string, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.next[op] = do
}

func (w *callWatch) rackBefore(seq int, op string) {
	c, ok := w.of().Rack.Call(seq)
	if !ok || !strings.HasPrefix(c.UserAgent, "omni-infra-provider-oxide/") {
		return
	}

	w.rules.rack(op, c.Path)

	w.mu.Lock()
	do := w.next[op]
	delete(w.next, op)
	w.mu.Unlock()

	if do != nil {
		do()
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
	name, ok := w.omniCall(number)
	if !ok {
		return
	}

	c, _ := w.of().Omni.Call(number)
	w.rules.omni(c.Verb, c.Type, c.ID)
	w.ends("omni", number, name)
}

// omniCall names a call of the daemon by verb and type.
func (w *callWatch) omniCall(number int) (string, bool) {
	c, ok := w.of().Omni.Call(number)
	if !ok || !strings.Contains(c.Identity, "@infra-provider.") {
		return "", false
	}

	kind, _, _ := strings.Cut(c.Type, ".")

	// The lease is kept by the clock, and by the standby too.
	if kind == "Lease" {
		return "", false
	}

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

	if !w.open || w.victim == nil {
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
	hit := w.open && w.victim != nil && w.hits(name, w.number[fmt.Sprint(server, number)], after)
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

// struckDown says whether a process that has ended was killed here, and returns
// once all that follows from the kill can be seen.
func (w *callWatch) struckDown() bool {
	w.mu.Lock()
	aimed := w.aimed
	w.mu.Unlock()

	if aimed {
		<-w.fired
	}

	return aimed
}

// kill returns when the process is dead.
func (w *callWatch) kill(victim *daemon, number int) {
	w.mu.Lock()
	w.aimed = true
	w.mu.Unlock()

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
