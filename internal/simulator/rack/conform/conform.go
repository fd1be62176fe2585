// Package conform holds what passes between a simulated rack and its clients
// against the OpenAPI document of the rack's API.
//
// A simulated rack checks itself when OIPO_OXIDE_OPENAPI names the document,
// wherever it runs: in a test's process, behind the simulator command, in the
// demo. Without the variable there is no checker and no cost. A variable that
// names a file that can not be read is an error, not a reason to check nothing.
//
// # What is a violation
//
//	side    | made by                          | held against the document
//	--------+----------------------------------+------------------------------------------
//	request | the daemon, by its User-Agent    | always
//	request | any other client                 | if the rack answered with 2xx
//	answer  | the rack                         | always
//	answer  | a fault rule                     | never: to differ is what it is there for
//
// So a test may send what is malformed, and say nothing about it, as long as
// the rack refuses it; a rack that takes it is found out.
//
// For the daemon's requests and for all answers the document's objects are
// closed: a key that is not in the document is a violation. Other clients'
// requests are held against the document as it is written, since a rack
// ignores keys and query parameters that it does not know.
//
// The text of a bulk write, which is most of its 700 KB, is left out: the rest
// of the body is checked with an empty one in its place, and the rack's own
// decoder refuses a bad text.
//
// # The report
//
// Each violation is logged, and when OIPO_OPENAPI_REPORT names a file, appended
// there as one JSON line; so is a summary when a rack is closed. The lines of
// many processes at once do not mix, as each is one write.
package conform

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// The environment: the document, and the file that violations are noted in.
const (
	DocumentVariable = "OIPO_OXIDE_OPENAPI"
	ReportVariable   = "OIPO_OPENAPI_REPORT"
)

// Exchange is a request with its answer.
type Exchange struct {
	Request *http.Request
	Body    []byte
	// Status is 0 when no answer was given.
	Status int
	Header http.Header
	Answer []byte
	// Spoiled says that a fault made the answer.
	Spoiled bool
}

// Violation is a request or an answer that does not fit the document.
type Violation struct {
	Side      string `json:"side"` // request or answer
	Method    string `json:"method"`
	Path      string `json:"path"`
	Status    int    `json:"status,omitempty"`
	UserAgent string `json:"user_agent,omitempty"`
	Problem   string `json:"problem"`
}

// Checker checks the exchanges of one rack. A nil one checks nothing.
type Checker struct {
	doc *document
	log *zap.Logger

	mu         sync.Mutex
	exchanges  int
	violations []Violation
	count      int
}

// keptViolations bounds those that Violations gives; all are counted, logged
// and noted.
const keptViolations = 100

// New makes a checker with the document that the environment names, or nil
// when it names none.
func New(log *zap.Logger) (*Checker, error) {
	path := os.Getenv(DocumentVariable)
	if path == "" {
		return nil, nil //nolint:nilnil // no document, no checker: said above
	}

	doc, err := load(path)
	if err != nil {
		return nil, err
	}

	return &Checker{doc: doc, log: log}, nil
}

// daemonAgent is what the daemon's User-Agent begins with.
var daemonAgent, _, _ = strings.Cut(version.UserAgent(), "/")

func fromDaemon(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), daemonAgent+"/") }

// Check notes what does not fit in an exchange.
func (c *Checker) Check(x Exchange) {
	if c == nil {
		return
	}

	c.mu.Lock()
	c.exchanges++
	c.mu.Unlock()

	strict := fromDaemon(x.Request)
	accepted := x.Status >= 200 && x.Status <= 299 && !x.Spoiled

	op, params, found := c.doc.find(x.Request.Method, x.Request.URL.Path)
	if !found {
		if strict || accepted {
			c.note("request", x, errors.New("the document has no such operation"))
		}

		return
	}

	if strict || accepted {
		if err := c.doc.checkRequest(op, params, x, strict); err != nil {
			c.note("request", x, err)
		}
	}

	if x.Status != 0 && !x.Spoiled {
		if err := c.doc.checkAnswer(op, params, x); err != nil {
			c.note("answer", x, err)
		}
	}
}

func (c *Checker) note(side string, x Exchange, err error) {
	v := Violation{
		Side: side, Method: x.Request.Method, Path: x.Request.URL.RequestURI(), Status: x.Status,
		UserAgent: x.Request.UserAgent(), Problem: err.Error(),
	}

	c.mu.Lock()
	c.count++

	if len(c.violations) < keptViolations {
		c.violations = append(c.violations, v)
	}
	c.mu.Unlock()

	c.log.Error("an exchange does not fit the API document", zap.String("side", v.Side),
		zap.String("http.method", v.Method), zap.String("http.path", v.Path), zap.Int("http.status", v.Status),
		zap.String("http.user_agent", v.UserAgent), zap.String("problem", v.Problem))
	c.report(line{Kind: "violation", Violation: &v})
}

// Violations are the first hundred found.
func (c *Checker) Violations() []Violation {
	if c == nil {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	return append([]Violation(nil), c.violations...)
}

// Close notes how much was checked.
func (c *Checker) Close() {
	if c == nil {
		return
	}

	c.mu.Lock()
	l := line{Kind: "summary", Exchanges: c.exchanges, Violations: c.count}
	c.exchanges, c.count = 0, 0
	c.mu.Unlock()

	if l.Exchanges > 0 {
		c.report(l)
	}
}
