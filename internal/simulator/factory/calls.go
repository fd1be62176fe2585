package factory

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// maxCalls is how many calls are kept; the counters go on.
const maxCalls = 10_000

// Call is one request as the factory saw it.
type Call struct {
	Time time.Time `json:"time"`
	// Server is factory or storage.
	Server    string `json:"server"`
	Method    string `json:"method"`
	Path      string `json:"path"`
	Status    int    `json:"status"`
	Bytes     int64  `json:"bytes"`
	Broken    bool   `json:"broken,omitempty"` // the connection was broken off
	UserAgent string `json:"userAgent,omitempty"`
}

// Summary counts what was asked for.
type Summary struct {
	Schematics int `json:"schematics"`
	Calls      int `json:"calls"`
	// Started counts GETs of images that were answered with data, Downloads
	// those that were sent to the end, both by schematic/version/file.
	Started   map[string]int `json:"started"`
	Downloads map[string]int `json:"downloads"`
	// Statuses counts the answers by status code.
	Statuses map[int]int `json:"statuses"`
}

type calls struct {
	mu      sync.Mutex
	log     []Call
	summary Summary
}

func newCalls() *calls {
	return &calls{summary: Summary{Started: map[string]int{}, Downloads: map[string]int{}, Statuses: map[int]int{}}}
}

func (c *calls) add(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.log) == maxCalls {
		c.log = append(c.log[:0], c.log[1:]...)
	}

	c.log = append(c.log, call)
	c.summary.Calls++
	c.summary.Statuses[call.Status]++

	_, key, isImage := strings.Cut(call.Path, "/image/")
	if !isImage || call.Method != http.MethodGet || call.Status/100 != 2 {
		return
	}

	c.summary.Started[key]++

	if !call.Broken {
		c.summary.Downloads[key]++
	}
}

// Calls returns the latest calls, the oldest first.
func (s *Server) Calls() []Call {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()

	return append([]Call(nil), s.calls.log...)
}

// Summary returns the counters.
func (s *Server) Summary() Summary {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()

	sum := s.calls.summary
	sum.Schematics = s.schematics.count()
	sum.Started, sum.Downloads, sum.Statuses = copyOf(sum.Started), copyOf(sum.Downloads), copyOf(sum.Statuses)

	return sum
}

func copyOf[K comparable](m map[K]int) map[K]int {
	c := make(map[K]int, len(m))
	for k, v := range m {
		c[k] = v
	}

	return c
}

func (s *Server) viewSummary(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, s.Summary())
}

func (s *Server) viewCalls(w http.ResponseWriter, _ *http.Request) {
	s.writeJSON(w, http.StatusOK, s.Calls())
}

// counter notes what was answered.
type counter struct {
	http.ResponseWriter

	status int
	bytes  int64
}

func (c *counter) WriteHeader(code int) {
	if c.status == 0 {
		c.status = code
	}

	c.ResponseWriter.WriteHeader(code)
}

func (c *counter) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}

	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)

	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// logged keeps a record of each call, also of those that end in a broken
// connection.
func (s *Server) logged(server string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &counter{ResponseWriter: w}
		call := Call{Time: time.Now(), Server: server, Method: r.Method, Path: r.URL.Path, UserAgent: r.UserAgent(), Broken: true}

		defer func() {
			call.Status, call.Bytes = c.status, c.bytes
			s.calls.add(call)
			s.log.Debug("call", zap.String("server", server), zap.String("method", call.Method), zap.String("path", call.Path),
				zap.Int("status", call.Status), zap.Int64("bytes", call.Bytes), zap.Bool("broken", call.Broken))
		}()

		next.ServeHTTP(c, r)

		if c.status == 0 && r.Context().Err() == nil {
			c.status = http.StatusOK
		}

		call.Broken = false
	})
}
