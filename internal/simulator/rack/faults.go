package rack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Action is what a fault does to a call.
type Action string

// The actions.
const (
	ActionNone       Action = ""
	ActionError      Action = "error"       // answer Status, Code, Message; no work
	ActionDelay      Action = "delay"       // wait Delay, then go on as usual
	ActionHang       Action = "hang"        // no answer, no work, until the client leaves
	ActionReset      Action = "reset"       // drop the connection, no work
	ActionLoseAnswer Action = "lose_answer" // do the work, drop the connection
	ActionCommitLate Action = "commit_late" // drop the connection, do the work Delay later
	ActionErrorAfter Action = "error_after" // do the work, answer Status (500)
	ActionLostStop   Action = "lost_stop"   // accept a stop without effect
)

// Duration is a time.Duration that is a string such as "1.5s" in JSON.
type Duration time.Duration

func (d Duration) duration() time.Duration { return time.Duration(d) }

// MarshalText writes the duration in Go's notation.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration in Go's notation.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)

	return err
}

// Fault is a rule: which calls, and what happens to them. Of the rules that
// match a call, the first that fires is applied.
type Fault struct {
	ID int `json:"id"`
	// Operation is the operation ID, such as disk_bulk_write_import; empty
	// matches every call.
	Operation string `json:"operation,omitempty"`
	// Path must be part of the request's path and query.
	Path string `json:"path,omitempty"`
	// Skip lets so many matching calls pass first.
	Skip int `json:"skip,omitempty"`
	// Count ends the rule after it has fired so often; 0 is never.
	Count int `json:"count,omitempty"`
	// Probability that a matching call is hit, drawn from Seed; 0 means 1.
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`

	Action  Action `json:"action"`
	Status  int    `json:"status,omitempty"` // 0: 500
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Delay is scaled by the rack's TimeScale.
	Delay Duration `json:"delay,omitempty"`

	// Matched and Fired count the calls so far.
	Matched int `json:"matched"`
	Fired   int `json:"fired"`
}

func (f *Fault) asError() error {
	e := &apiError{status: f.Status, code: f.Code, message: f.Message}
	if e.status == 0 {
		e.status = http.StatusInternalServerError
	}

	if e.message == "" {
		e.message = http.StatusText(e.status)
	}

	if e.code == "" && e.status == http.StatusInternalServerError {
		e.code = "Internal"
	}

	return e
}

func (f *Fault) check() error {
	switch f.Action {
	case ActionError, ActionDelay, ActionHang, ActionReset, ActionLoseAnswer, ActionCommitLate, ActionErrorAfter, ActionLostStop:
	case ActionNone:
		return fmt.Errorf("fault without action")
	default:
		return fmt.Errorf("unknown fault action %q", f.Action)
	}

	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return fmt.Errorf("fault status %d is no error", f.Status)
	}

	if f.Probability < 0 || f.Probability > 1 {
		return fmt.Errorf("fault probability %v is not within 0 and 1", f.Probability)
	}

	return nil
}

type armed struct {
	Fault
	rng *rand.Rand
}

type faultSet struct {
	mu    sync.Mutex
	next  int
	rules []*armed
}

func (fs *faultSet) add(f Fault) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}

	fs.mu.Lock()
	defer fs.mu.Unlock()

	fs.next++
	f.ID, f.Matched, f.Fired = fs.next, 0, 0
	fs.rules = append(fs.rules, &armed{Fault: f, rng: rand.New(rand.NewPCG(f.Seed, 0))})

	return f.ID, nil
}

// pick counts the call in each rule that matches and returns the first that
// fires, or the zero Fault.
func (fs *faultSet) pick(op, uri string) Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	var hit *armed

	for _, a := range fs.rules {
		if a.Operation != "" && a.Operation != op || !strings.Contains(uri, a.Path) {
			continue
		}

		a.Matched++

		if hit == nil && a.fires() {
			a.Fired++
			hit = a
		}
	}

	if hit == nil {
		return Fault{}
	}

	return hit.Fault
}

func (a *armed) fires() bool {
	if a.Matched <= a.Skip || a.Count > 0 && a.Fired >= a.Count {
		return false
	}

	return a.Probability == 0 || a.rng.Float64() < a.Probability
}

func (fs *faultSet) list() []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	out := make([]Fault, 0, len(fs.rules))
	for _, a := range fs.rules {
		out = append(out, a.Fault)
	}

	return out
}

// remove drops one rule, or all with ID 0.
func (fs *faultSet) remove(id int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()

	kept := fs.rules[:0]

	for _, a := range fs.rules {
		if id != 0 && a.ID != id {
			kept = append(kept, a)
		}
	}

	clear(fs.rules[len(kept):])
	fs.rules = kept
}

// AddFault adds a rule and returns its ID.
func (s *Server) AddFault(f Fault) (int, error) { return s.faults.add(f) }

// Faults are the rules with their counts.
func (s *Server) Faults() []Fault { return s.faults.list() }

// RemoveFault drops a rule; 0 drops all.
func (s *Server) RemoveFault(id int) { s.faults.remove(id) }

// ParseFaults reads a JSON array of rules, or a single one. Keys that no rule
// has are errors.
func ParseFaults(raw []byte) ([]Fault, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()

	var (
		many []Fault
		err  error
	)

	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		err = dec.Decode(&many)
	} else {
		many = make([]Fault, 1)
		err = dec.Decode(&many[0])
	}

	if err != nil {
		return nil, fmt.Errorf("reading faults: %w", err)
	}

	return many, nil
}
