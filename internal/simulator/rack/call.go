package rack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/conform"
)

const (
	bodyLimit     = 1 << 20
	bulkBodyLimit = 8 << 20
)

// knownParameters may stand in a query once; others are ignored.
var knownParameters = map[string]bool{
	"limit": true, "page_token": true, "sort_by": true,
	"project": true, "vpc": true, "router": true, "instance": true, "gateway": true, "group": true, "ip_version": true,
}

// call is one request on its way through the rack.
type call struct {
	s     *Server
	op    string
	seq   int
	r     *http.Request
	query url.Values
	body  []byte
	token *Token
	user  *user
	// fault is what hits the call.
	fault Fault
	// buffers are those of a bulk write, nil for all other calls.
	buffers *bulkBuffers
	// spoiled says that a fault makes the answer.
	spoiled bool
}

type answer struct {
	status int
	body   any
}

func ok(v any) answer       { return answer{http.StatusOK, v} }
func created(v any) answer  { return answer{http.StatusCreated, v} }
func accepted(v any) answer { return answer{http.StatusAccepted, v} }
func noContent() answer     { return answer{http.StatusNoContent, nil} }

// operation does a call's work. It must not look at the request's context:
// what was begun is finished although the client has gone.
type operation func(*Server, *call) (answer, error)

func (c *call) path(key string) string { return c.r.PathValue(key) }

// serve is the way of every call: log, fault, judge, work, answer.
func (s *Server) serve(op string, work operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{s: s, op: op, r: r}
		c.seq = s.calls.begin(op, r)

		if s.cfg.BeforeCall != nil {
			s.cfg.BeforeCall(c.seq, op)
		}

		readErr := c.read(w)
		c.fault = s.pickFault(c)

		//nolint:contextcheck // what was begun is finished although the client has gone
		s.carryOut(w, c, func() (answer, error) {
			if readErr != nil {
				return answer{}, readErr
			}

			if err := c.judge(); err != nil {
				return answer{}, err
			}

			return work(s, c)
		})
	}
}

// finish notes the end of a call. Status 0 is a call that got no answer.
func (s *Server) finish(c *call, status int) {
	s.calls.end(c.seq, status, s.tokenName(c.r), &c.fault)

	if status == 0 {
		s.checker.Check(conform.Exchange{Request: c.r, Body: c.body})
	}

	if s.cfg.AfterCall != nil {
		s.cfg.AfterCall(c.seq, c.op)
	}
}

// read takes in the body, whole, before any work begins.
func (c *call) read(w http.ResponseWriter) error {
	limit := int64(bodyLimit)

	var into []byte

	if c.op == opBulkWrite {
		limit = bulkBodyLimit
		c.buffers, _ = bulkPool.Get().(*bulkBuffers)
		into = c.buffers.body[:]
	}

	body := http.MaxBytesReader(w, c.r.Body, limit)

	var err error

	switch n := c.r.ContentLength; {
	case n >= 0 && n <= int64(len(into)):
		c.body = into[:n]
		_, err = io.ReadFull(body, c.body)
	case n >= 0 && n <= limit:
		c.body = make([]byte, n)
		_, err = io.ReadFull(body, c.body)
	default:
		c.body, err = io.ReadAll(body)
	}

	var tooLarge *http.MaxBytesError

	switch {
	case errors.As(err, &tooLarge):
		return badParse("request body exceeded maximum size of %d bytes", limit)
	case err != nil:
		return badParse("reading request body: %v", err)
	default:
		return nil
	}
}

// release gives back what the call has borrowed; nothing may look at its body
// any more.
func (c *call) release() {
	if c.buffers != nil {
		c.body = nil
		bulkPool.Put(c.buffers)
		c.buffers = nil
	}
}

// judge applies what is common to all calls: version, credentials, encoding.
func (c *call) judge() error {
	if err := checkVersion(c.r.Header.Get("Api-Version"), c.s.newestVersion()); err != nil {
		return err
	}

	if c.op == opNotServed || c.op == opWrongMethod {
		return nil // nobody is there to judge more
	}

	if c.op != opPing {
		t, u, err := c.s.authenticate(c.r)
		if err != nil {
			return err
		}

		c.token, c.user = t, u
	}

	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return badParse("unable to parse query string: %v", err)
	}

	for key, values := range q {
		if len(values) > 1 && knownParameters[key] {
			return badParse("unable to parse query string: duplicate field `%s`", key)
		}
	}

	c.query = q

	if ct := c.r.Header.Get("Content-Type"); ct != "" && len(c.body) > 0 {
		if m, _, err := mime.ParseMediaType(ct); err != nil || m != "application/json" {
			return badParse("expected content type \"application/json\", got %q", ct)
		}
	}

	return nil
}

// checkVersion admits no header, or exactly the version that is served: the
// simulator has no older shapes to fall back to. A rack that is older knows
// less.
func checkVersion(header, newest string) error {
	if header == "" || header == APIVersion && newest == APIVersion {
		return nil
	}

	parts := strings.Split(header, ".")
	if len(parts) != 3 {
		return badParse("bad value for header \"api-version\": %q", header)
	}

	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 10, 64); err != nil {
			return badParse("bad value for header \"api-version\": %q", header)
		}
	}

	return badParse("server does not support this API version: %s", header)
}

func statusOf(a answer, err error) int {
	var e *apiError

	switch {
	case err == nil:
		return a.status
	case errors.As(err, &e):
		return e.status
	default:
		return http.StatusInternalServerError
	}
}

// reply writes the answer; the request ID stands in the header of every one
// and in the body of errors.
func (s *Server) reply(w http.ResponseWriter, c *call, a answer, err error) {
	id := uuid.NewString()
	body := a.body
	status := statusOf(a, err)

	h := w.Header()

	if err != nil {
		var e *apiError
		if !errors.As(err, &e) {
			s.log.Error("a call ended with an error of no API kind", zap.String("operation", c.op), zap.Error(err))

			e = internal()
		}

		for _, method := range e.allow {
			h.Add("Allow", method)
		}

		body = errorBody{RequestID: id, ErrorCode: e.code, Message: e.message}
	}

	s.finish(c, status)

	h.Set("X-Request-Id", id)

	if err != nil && c.spoiled && c.fault.RetryAfter != "" {
		h.Set("Retry-After", c.fault.RetryAfter)
	}

	var raw []byte

	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			s.log.Error("an answer can not be encoded", zap.String("operation", c.op), zap.Error(err))
		}

		h.Set("Content-Type", "application/json")
	}

	status, raw = c.spoil(w, status, raw)
	send(w, status, raw)
	s.check(w, c, status, raw)
}

// send writes an answer. A client that has left is no trouble of the rack's.
func send(w http.ResponseWriter, status int, raw []byte) {
	if raw != nil {
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	}

	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

// check holds a call that was answered against the API's document. The client
// does not wait for that.
func (s *Server) check(w http.ResponseWriter, c *call, status int, answer []byte) {
	if s.checker == nil {
		return
	}

	_ = http.NewResponseController(w).Flush() // a client that has left is no trouble of the rack's

	s.checker.Check(conform.Exchange{
		Request: c.r, Body: c.body, Status: status, Header: w.Header(), Answer: answer, Spoiled: c.spoiled,
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		http.Error(w, fmt.Sprintf("encoding the answer: %v", err), http.StatusInternalServerError)

		return
	}

	w.Header().Set("Content-Type", "application/json")
	send(w, status, raw)
}

// reset drops the connection without an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 streams have no connection of their own
	}

	if tcp, isTCP := conn.(*net.TCPConn); isTCP {
		_ = tcp.SetLinger(0) // RST rather than an orderly end
	}

	_ = conn.Close()
}
