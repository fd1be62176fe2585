package rack

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Call is an entry of the log of all API calls.
type Call struct {
	Seq       int       `json:"seq"`
	Time      time.Time `json:"time"`
	Operation string    `json:"operation"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // with the query
	// Status is 0 while the call goes on and when it got no answer.
	Status int  `json:"status"`
	Done   bool `json:"done"`
	// Duration is from when the call came in until its work was done.
	Duration  Duration `json:"duration"`
	UserAgent string   `json:"user_agent,omitempty"`
	Token     string   `json:"token,omitempty"` // its name
	// Fault is the rule that hit the call, and FaultName what it does.
	Fault     int    `json:"fault,omitempty"`
	FaultName string `json:"fault_name,omitempty"`
}

// keptCalls bounds the log; the counts go on for ever.
const keptCalls = 100_000

type callLog struct {
	clock Clock

	mu     sync.Mutex
	calls  []Call
	first  int // sequence number of calls[0]
	counts map[string]int
}

func newCallLog(clock Clock) *callLog {
	return &callLog{clock: clock, first: 1, counts: map[string]int{}}
}

func (l *callLog) begin(op string, r *http.Request) int {
	now := l.clock.Now().UTC()

	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.calls) >= keptCalls {
		drop := keptCalls / 4
		l.calls = append([]Call(nil), l.calls[drop:]...)
		l.first += drop
	}

	seq := l.first + len(l.calls)
	l.calls = append(l.calls, Call{
		Seq: seq, Time: now, Operation: op, Method: r.Method, Path: r.URL.RequestURI(), UserAgent: r.UserAgent(),
	})
	l.counts[op]++

	return seq
}

func (l *callLog) end(seq, status int, token string, f *Fault) {
	now := l.clock.Now()

	l.mu.Lock()
	defer l.mu.Unlock()

	i := seq - l.first
	if i < 0 {
		return
	}

	c := &l.calls[i]
	c.Status, c.Token, c.Done, c.Duration = status, token, true, Duration(now.Sub(c.Time))
	c.Fault, c.FaultName = f.ID, f.name()
}

// list gives the calls that pass, oldest first; limit 0 is all, else the
// latest ones.
func (l *callLog) list(pass func(*Call) bool, limit int) []Call {
	l.mu.Lock()
	defer l.mu.Unlock()

	out := []Call{}

	for n := range l.calls {
		if pass(&l.calls[n]) {
			out = append(out, l.calls[n])
		}
	}

	if limit > 0 && len(out) > limit {
		out = out[len(out)-limit:]
	}

	return out
}

func (l *callLog) counted() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()

	out := make(map[string]int, len(l.counts))
	for k, v := range l.counts {
		out[k] = v
	}

	return out
}

// Calls are the latest API calls, oldest first.
func (s *Server) Calls() []Call { return s.calls.list(func(*Call) bool { return true }, 0) }

// Call is one call by its sequence number, as hooks get it; false when the log
// does not hold it any more.
func (s *Server) Call(seq int) (Call, bool) {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()

	i := seq - s.calls.first
	if i < 0 || i >= len(s.calls.calls) {
		return Call{}, false
	}

	return s.calls.calls[i], true
}

// CallCount is how often an operation was called.
func (s *Server) CallCount(operation string) int { return s.calls.counted()[operation] }

// callFilters are what GET /simulator/calls can be asked for.
var callFilters = map[string]func(c *Call, want string) bool{
	"operation":  func(c *Call, want string) bool { return c.Operation == want },
	"method":     func(c *Call, want string) bool { return c.Method == want },
	"path":       func(c *Call, want string) bool { return strings.Contains(c.Path, want) },
	"token":      func(c *Call, want string) bool { return c.Token == want },
	"user_agent": func(c *Call, want string) bool { return strings.HasPrefix(c.UserAgent, want) },
	"fault_name": func(c *Call, want string) bool { return c.FaultName == want },
	"status":     func(c *Call, want string) bool { return strconv.Itoa(c.Status) == want },
	"fault":      func(c *Call, want string) bool { return strconv.Itoa(c.Fault) == want },
	"after":      func(c *Call, want string) bool { n, _ := strconv.Atoi(want); return c.Seq > n },
}

// filterCalls reads a query such as operation=disk_create&status=400&limit=10.
func (l *callLog) filterCalls(q url.Values) ([]Call, error) {
	limit := 0

	for key, values := range q {
		_, isNumber := strconv.ParseUint(values[0], 10, 31)

		switch {
		case len(values) > 1:
			return nil, fmt.Errorf("%s is given %d times", key, len(values))
		case key == "limit" || key == "after" || key == "status" || key == "fault":
			if isNumber != nil {
				return nil, fmt.Errorf("%s is %q: it must be a number", key, values[0])
			}
		case callFilters[key] == nil:
			return nil, fmt.Errorf("unknown filter %q", key)
		}
	}

	if q.Has("limit") {
		limit, _ = strconv.Atoi(q.Get("limit"))
		q.Del("limit")
	}

	return l.list(func(c *Call) bool {
		for key, values := range q {
			if !callFilters[key](c, values[0]) {
				return false
			}
		}

		return true
	}, limit), nil
}
