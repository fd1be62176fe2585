package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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
