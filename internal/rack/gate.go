package rack

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// Gate says whether calls that change the rack may go out: those that create,
// name, start, stop or delete. Reads are never asked about, and neither are bulk
// writes, which fill a disk that this process has made.
type Gate interface {
	// Await is asked before a call. It may wait for as long as ctx.
	Await(ctx context.Context) error
	// Check is asked right before each request of the call, once its connection
	// is there. It does not wait.
	Check() error
}

// Behind is the same client behind a gate.
func (c *Client) Behind(g Gate) *Client {
	behind := *c
	behind.gate = g

	return &behind
}

// change is call for what changes the rack.
func change[T any](ctx context.Context, c *Client, op string, f func(context.Context) (T, error)) (T, error) {
	var zero T

	p := &permit{gate: c.gate}

	if p.gate != nil {
		if err := p.gate.Await(ctx); err != nil {
			return zero, fenced(op, err)
		}
	}

	ctx, done := c.outlive(ctx)
	defer done()

	v, err := paced(context.WithValue(ctx, permitKey{}, p), c, op, true, sagaDeadline, f)
	if refusal := p.refusal.Load(); err != nil && refusal != nil {
		return zero, fenced(op, *refusal)
	}

	return v, err
}

// changeOnly is change for methods without a result.
func changeOnly(ctx context.Context, c *Client, op string, f func(context.Context) error) error {
	_, err := change(ctx, c, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })

	return err
}

// fill makes a call that only fills a disk of ours: it passes any gate, and has its
// own limits.
func fill(ctx context.Context, c *Client, op string, deadline time.Duration, f func(context.Context) error) error {
	ctx, done := c.outlive(ctx)
	defer done()

	return runNow(context.WithValue(ctx, permitKey{}, &permit{}), c, op, deadline, f)
}

func fenced(op string, cause error) error {
	return &Error{Op: op, Class: ClassFenced, Message: oneLine(cause.Error()), cause: cause}
}

type permitKey struct{}

// permit goes with a call's context. The SDK makes text of a transport's error,
// so what the gate said is kept here.
type permit struct {
	gate    Gate
	refusal atomic.Pointer[error]
}

func (p *permit) check() error {
	if p.gate == nil {
		return nil
	}

	err := p.gate.Check()
	if err != nil {
		p.refusal.Store(&err)
	}

	return err
}

// turnstile is the transport of all calls. Whatever is no read needs a permit,
// so a method that forgets to ask for one fails in its first test.
type turnstile struct {
	next http.RoundTripper
	who  *atomic.Pointer[access]
}

var errNoPermit = errors.New("a call that changes the rack did not ask the gate")

// RoundTrip implements http.RoundTripper.
func (t turnstile) RoundTrip(req *http.Request) (*http.Response, error) {
	req = t.who.Load().apply(req)

	if req.Method == http.MethodGet {
		return t.next.RoundTrip(req)
	}

	p, ok := req.Context().Value(permitKey{}).(*permit)

	switch {
	case !ok:
		return nil, refuse(req, errNoPermit)
	case p.gate == nil:
		return t.next.RoundTrip(req)
	}

	if err := p.check(); err != nil {
		return nil, refuse(req, err)
	}

	return t.next.RoundTrip(req.WithContext(p.trace(req.Context())))
}

// trace asks once more when the connection is there: dialing may take long, and
// the transport may send a request again over another connection when the first
// one died before the request was taken.
func (p *permit) trace(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)

	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		err := p.check()
		if err == nil {
			return
		}

		cancel(err)

		// HTTP/1 looks at the context only after it has begun to write.
		if secure, ok := info.Conn.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != "h2" {
			_ = info.Conn.Close()
		}
	}})
}

// refuse ends a request as a transport must.
func refuse(req *http.Request, err error) error {
	if req.Body != nil {
		_ = req.Body.Close()
	}

	return err
}
