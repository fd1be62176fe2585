// Package rack is an Oxide rack as the daemon uses it: oxide.go's client with a
// deadline for each call, errors in classes, and lists that are complete or
// fail.
//
// Nothing here repeats a call. The rack has no idempotency keys and finishes
// what it began although the client has gone, so whoever calls must look before
// it repeats; only the caller knows by which name.
package rack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// The deadlines of one call. A saga of the rack answers when it has ended.
const (
	readDeadline = 30 * time.Second
	// sagaDeadline bounds calls that run a saga: beyond it the outcome counts as
	// unknown, and the caller looks for what the saga made.
	sagaDeadline = 120 * time.Second
	// chunkDeadline bounds one bulk write.
	chunkDeadline = 60 * time.Second
)

// pageLimit is the number of objects asked for in one page of a list.
const pageLimit = 1000

// Config says which rack, and as whom.
type Config struct {
	// Host is the URL of the silo's API; Token is a device token.
	Host, Token string
	// UserAgent is sent with each call.
	UserAgent string
	// Calls and Changes bound the calls at once, and those of them that change
	// something; zero is DefaultCalls and DefaultChanges. Bulk writes do not count.
	Calls, Changes int
	// Transport is used for all calls; nil makes one from Go's default.
	Transport *http.Transport
}

// Client makes calls to one rack. It is safe for concurrent use.
type Client struct {
	api       *oxide.Client
	bulk      *oxide.Client
	transport []interface{ CloseIdleConnections() }
	cfg       Config
	// who is shared by all clients that were made from one.
	who  *atomic.Pointer[access]
	pace *pace
	// gate is asked before calls that change the rack; nil lets all out.
	gate Gate
	// stop and end are those of Outliving.
	stop, end context.Context //nolint:containedctx // of the process, not of a call
	// observer is told of each call; nil tells nobody.
	observer Observer
}

// Observer counts calls.
type Observer interface {
	// RackCall is told of each request after its end: what was being done, as in
	// error texts, and the class of its outcome.
	RackCall(doing, class string, took time.Duration)
}

// Observed is the same client with each of its calls told.
func (c *Client) Observed(o Observer) *Client {
	observed := *c
	observed.observer = o

	return &observed
}

// New checks the configuration and makes a client. It makes no call.
func New(cfg Config) (*Client, error) {
	base := cfg.Transport
	if base == nil {
		d, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			return nil, errors.New("the default HTTP transport was replaced")
		}

		base = d
	}

	who, err := newAccess(cfg.Host, cfg.Token)
	if err != nil {
		return nil, err
	}

	c := &Client{cfg: cfg, who: &atomic.Pointer[access]{}, pace: newPace(cfg.Calls, cfg.Changes)}
	c.who.Store(who)

	apiTransport := base.Clone()
	apiTransport.MaxIdleConnsPerHost = 16
	// Several calls share a connection, so one that has died under them is not
	// idle, and only a ping tells.
	apiTransport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second}

	bulk := newLanes(base)
	c.transport = append(c.transport, apiTransport, bulk)

	if c.api, err = newSDK(cfg, c.who, apiTransport); err != nil {
		return nil, err
	}

	if c.bulk, err = newSDK(cfg, c.who, bulkTransport{bulk}); err != nil {
		return nil, err
	}

	return c, nil
}

func newSDK(cfg Config, who *atomic.Pointer[access], t http.RoundTripper) (*oxide.Client, error) {
	c, err := oxide.NewClient(
		oxide.WithHTTPClient(&http.Client{Transport: turnstile{t, who}, CheckRedirect: stay}),
		oxide.WithUserAgent(cfg.UserAgent),
		// Explicit options, always: without any, the SDK lets a profile from the
		// environment win over host and token.
		oxide.WithHost(cfg.Host), oxide.WithToken(cfg.Token),
	)
	if err != nil {
		return nil, fmt.Errorf("making the Oxide client: %w", err)
	}

	return c, nil
}

// Close drops idle connections.
func (c *Client) Close() {
	for _, t := range c.transport {
		t.CloseIdleConnections()
	}
}

// call runs one read when there is a place for it.
func call[T any](ctx context.Context, c *Client, op string, deadline time.Duration, f func(context.Context) (T, error)) (T, error) {
	return paced(ctx, c, op, false, deadline, f)
}

// paced runs one call when there is a place for it.
func paced[T any](ctx context.Context, c *Client, op string, changes bool, deadline time.Duration, f func(context.Context) (T, error)) (T, error) {
	leave, err := c.pace.enter(ctx, op, changes)
	if err != nil {
		var zero T

		return zero, err
	}

	defer leave()

	began := time.Now()
	v, err := callNow(ctx, c, op, deadline, f)
	c.pace.answered(began, err)

	return v, err
}

// callNow runs one call under its deadline and classifies its error.
func callNow[T any](ctx context.Context, c *Client, op string, deadline time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()

	began := time.Now()

	v, err := f(ctx)
	if err == nil {
		c.observe(ctx, op, ClassOK, began)

		return v, nil
	}

	var zero T

	err = wrap(ctx, op, err)
	c.observe(ctx, op, ClassOf(err), began)

	// A rack has several API servers behind one name; the next dial may find
	// another one than the one that does not answer.
	if ClassOf(err) == ClassLost && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.Close()
	}

	return zero, err
}

// observe tells of a call that has ended.
func (c *Client) observe(ctx context.Context, op string, class Class, began time.Time) {
	if c.observer == nil {
		return
	}

	if p, ok := ctx.Value(permitKey{}).(*permit); ok && p.refusal.Load() != nil {
		class = ClassFenced
	}

	c.observer.RackCall(op, class.String(), time.Since(began))
}

// runNow is callNow for methods without a result.
func runNow(ctx context.Context, c *Client, op string, deadline time.Duration, f func(context.Context) error) error {
	_, err := callNow(ctx, c, op, deadline, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})

	return err
}

// listAll reads every page, sorted by ID so that objects made or deleted in
// between move no other one. It answers the complete list or an error.
func listAll[T any](
	ctx context.Context, c *Client, op string, page func(ctx context.Context, limit *int, token string) ([]T, string, error),
) ([]T, error) {
	return listUntil(ctx, c, op, nil, page)
}

// Enough says of what a list has given so far whether the caller needs no more.
// Nil is never.
type Enough[T any] func(all []T) bool

// listUntil is listAll for who looks for certain objects: it ends at the first page
// that is not full once enough is there. The rack tells the end of a list by an
// empty page, which is another call; only who wants to know that something is
// absent has to make it.
func listUntil[T any](
	ctx context.Context, c *Client, op string, enough Enough[T], page func(ctx context.Context, limit *int, token string) ([]T, string, error),
) ([]T, error) {
	var (
		all   []T
		token string
	)

	for {
		type result struct {
			items []T
			next  string
		}

		r, err := call(ctx, c, op, readDeadline, func(ctx context.Context) (result, error) {
			items, next, err := page(ctx, oxide.NewPointer(pageLimit), token)

			return result{items, next}, err
		})
		if err != nil {
			return nil, err
		}

		all = append(all, r.items...)

		if r.next == "" || enough != nil && len(r.items) < pageLimit && enough(all) {
			return all, nil
		}

		if r.next == token {
			return nil, &Error{Op: op, Class: ClassInternal, Message: "the rack answered the same page twice"}
		}

		token = r.next
	}
}

// byID sorts lists so that paging is stable.
const byID = oxide.NameOrIdSortModeIdAscending
