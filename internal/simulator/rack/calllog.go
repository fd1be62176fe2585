package rack

import (
	"net/http"
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
	Status    int    `json:"status"`
	Done      bool   `json:"done"`
	UserAgent string `json:"user_agent,omitempty"`
	Token     string `json:"token,omitempty"` // its name
}

// keptCalls bounds the log; the counts go on for ever.
const keptCalls = 200_000

type callLog struct {
	mu     sync.Mutex
	calls  []Call
	first  int // sequence number of calls[0]
	counts map[string]int
}

func newCallLog() *callLog { return &callLog{first: 1, counts: map[string]int{}} }

func (l *callLog) begin(op string, r *http.Request) int {
	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.calls) >= keptCalls {
		drop := keptCalls / 4
		l.calls = append([]Call(nil), l.calls[drop:]...)
		l.first += drop
	}

	seq := l.first + len(l.calls)
	l.calls = append(l.calls, Call{
		Seq: seq, Time: time.Now().UTC(), Operation: op, Method: r.Method,
		Path: r.URL.RequestURI(), UserAgent: r.UserAgent(),
	})
	l.counts[op]++

	return seq
}

func (l *callLog) end(seq, status int, token string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	i := seq - l.first
	if i < 0 {
		return
	}

	l.calls[i].Status, l.calls[i].Token, l.calls[i].Done = status, token, true
}

func (l *callLog) list() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()

	return append([]Call(nil), l.calls...)
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
func (s *Server) Calls() []Call { return s.calls.list() }

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
