package rack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// rule is a Fault that has been added.
type rule struct {
	Fault

	rng *rand.Rand
	// phase counts what a condition goes through: maintenance first refuses
	// sagas, then all; a sled is first out of reach, then known to be.
	phase  int
	cancel context.CancelFunc // ends what waits for the rule's times
}

type faultSet struct {
	// held counts the conditions, so that a rack without any does not look for
	// them.
	held atomic.Int32

	mu      sync.Mutex
	next    int
	rules   []*rule
	changed chan struct{} // closed when a condition has come, gone or moved on
}

func newFaultSet() *faultSet { return &faultSet{changed: make(chan struct{})} }

// change does something to the rules, and wakes who waits for a condition.
func (fs *faultSet) change(f func()) {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	f()
	close(fs.changed)
	fs.changed = make(chan struct{})

	conditions := 0

	for _, r := range fs.rules {
		if r.Condition != "" {
			conditions++
		}
	}

	fs.held.Store(int32(conditions))
}

func (fs *faultSet) awaitChange() <-chan struct{} {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	return fs.changed
}

// pick counts the call in each rule that matches and returns the first that
// fires, or the zero Fault.
func (fs *faultSet) pick(op string, r *http.Request, token string) Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	var hit *rule

	for _, x := range fs.rules {
		if !x.picksCalls() || !x.Active || !x.matches(op, r, token) {
			continue
		}

		x.Matched++

		if hit == nil && x.fires() {
			x.Fired++
			hit = x
		}
	}

	if hit == nil {
		return Fault{}
	}

	return hit.Fault
}

func (x *rule) matches(op string, r *http.Request, token string) bool {
	return (x.Operation == "" || x.Operation == op) && (x.Method == "" || x.Method == r.Method) &&
		(x.Token == "" || x.Token == token) && (x.Path == "" || strings.Contains(r.URL.RequestURI(), x.Path))
}

func (x *rule) fires() bool {
	if x.Matched <= x.Skip || x.Count > 0 && x.Fired >= x.Count {
		return false
	}

	return x.Probability == 0 || x.rng.Float64() < x.Probability
}

// holding is a condition that holds now, and its phase.
type holding struct {
	Fault

	phase int
}

// holding gives the conditions of a kind that hold now.
func (fs *faultSet) holding(c Condition) []holding {
	if fs.held.Load() == 0 {
		return nil
	}

	fs.mu.Lock()
	defer fs.mu.Unlock()

	var out []holding

	for _, x := range fs.rules {
		if x.Condition == c && x.Active {
			out = append(out, holding{x.Fault, x.phase})
		}
	}

	return out
}

func (fs *faultSet) any() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	return len(fs.rules) > 0
}

func (fs *faultSet) list() []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	out := make([]Fault, 0, len(fs.rules))
	for _, x := range fs.rules {
		out = append(out, x.Fault)
	}

	return out
}

// remove drops one rule, or all with ID 0.
func (fs *faultSet) remove(id int) {
	fs.change(func() {
		fs.rules = slices.DeleteFunc(fs.rules, func(x *rule) bool {
			gone := id == 0 || x.ID == id
			if gone {
				x.cancel()
			}

			return gone
		})
	})
}

// AddFault adds a rule and returns its ID. An event that waits for nothing
// happens at once, and is no rule when it can not.
func (s *Server) AddFault(f Fault) (int, error) {
	if err := f.check(); err != nil {
		return 0, fmt.Errorf("fault: %w", err)
	}

	f.complete()

	wait := s.scaled(f.From)
	if f.Since == "start" {
		wait -= s.clock.Now().Sub(s.started)
	}

	f.Active = wait <= 0

	if f.Active && f.happensOnce() {
		if err := s.perform(f); err != nil {
			return 0, fmt.Errorf("fault: %s: %w", f.Event, err)
		}

		f.Active, f.Fired = false, 1
		wait = 0
	}

	return s.arm(f, wait), nil
}

// complete fills in what goes without saying.
func (f *Fault) complete() {
	f.Matched, f.Fired = 0, 0

	if f.Event != "" && f.picksCalls() && f.Count == 0 {
		f.Count = 1
	}

	if only := onlyOperation[f.Action]; only != "" {
		f.Operation = only
	}
}

// happensOnce says whether the rule is an event that waits for no call.
func (f *Fault) happensOnce() bool { return f.Event != "" && !f.picksCalls() }

// arm adds a rule, and has its times come.
func (s *Server) arm(f Fault, wait time.Duration) int {
	x := &rule{Fault: f, rng: rand.New(rand.NewPCG(f.Seed, 0))}

	ctx, cancel := context.WithCancel(s.ctx)
	x.cancel = cancel

	s.faults.change(func() {
		s.faults.next++
		x.ID = s.faults.next
		x.phase = x.first()
		s.faults.rules = append(s.faults.rules, x)
	})

	s.mu.Lock()
	defer s.mu.Unlock()

	if wait > 0 || f.Active && f.hasPhases() {
		s.spawn(func() { s.live(ctx, x, max(wait, 0)) })
	}

	if f.Until > 0 {
		s.spawn(func() {
			if s.sleep(ctx, wait+s.scaled(f.Until-f.From)) {
				s.faults.change(func() { x.Active = false })
				cancel()
			}
		})
	}

	return x.ID
}

func (s *Server) scaled(d Duration) time.Duration {
	return time.Duration(float64(d) * s.cfg.TimeScale)
}

// first is the phase that a condition begins in.
func (f *Fault) first() int {
	if f.Condition == ConditionMaintenance && f.Sagas == 0 && f.Away > 0 {
		return 2
	}

	return 1
}

// hasPhases says whether time changes the rule once it works.
func (f *Fault) hasPhases() bool {
	return f.Condition == ConditionMaintenance && f.Sagas+f.Away > 0 || f.Condition == ConditionSledAway && f.Delay > 0
}

// live takes a rule through its times.
func (s *Server) live(ctx context.Context, x *rule, wait time.Duration) {
	if wait > 0 {
		if !s.sleep(ctx, wait) {
			return
		}

		if x.happensOnce() {
			s.faults.change(func() { x.Fired++ })
			s.happen(x.Fault)

			return
		}

		s.faults.change(func() { x.Active = true })
	}

	switch x.Condition {
	case ConditionMaintenance:
		if !x.hasPhases() {
			return
		}

		if x.Sagas > 0 && s.sleep(ctx, s.scaled(x.Sagas)) {
			s.faults.change(func() { x.phase = 2 })
		}

		if ctx.Err() == nil && (x.Away == 0 || s.sleep(ctx, s.scaled(x.Away))) {
			s.faults.change(func() { x.Active = false })
		}
	case ConditionSledAway:
		if x.Delay > 0 && s.sleep(ctx, s.scaled(x.Delay)) {
			s.faults.change(func() { x.phase = 2 })
			s.failSled(x.Sled) //nolint:contextcheck // what happens to its instances outlives the rule
		}
	default:
	}
}

// happen makes an event happen for which nobody waits.
func (s *Server) happen(f Fault) {
	if err := s.perform(f); err != nil {
		s.log.Warn("an event of a fault rule could not happen", zap.Int("fault.id", f.ID), zap.String("event", string(f.Event)), zap.Error(err))
	}
}

// Faults are the rules with their counts.
func (s *Server) Faults() []Fault { return s.faults.list() }

// RemoveFault drops a rule, and lifts its condition; 0 drops all.
func (s *Server) RemoveFault(id int) { s.faults.remove(id) }
