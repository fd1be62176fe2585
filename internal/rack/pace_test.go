package rack_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// busy is a server that counts the calls in it, and lets none go before it is told.
type busy struct {
	now, most, reads, changes, mostChanges atomic.Int64
	open                                   chan struct{}
}

func (s *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	count := func(of, most *atomic.Int64) func() {
		n := of.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}

		return func() { of.Add(-1) }
	}

	defer count(&s.now, &s.most)()

	if r.Method != http.MethodGet {
		defer count(&s.changes, &s.mostChanges)()
	} else {
		s.reads.Add(1)
	}

	<-s.open
	answer(w, http.StatusNotFound, `{"error_code":"ObjectNotFound","message":"not found"}`)
}

// Rule: no more calls are made at once than the limits say, and a limit of changes
// that is reached holds up no read.
func TestCallsAtOnceAreLimited(t *testing.T) {
	t.Parallel()

	s := &busy{open: make(chan struct{})}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)

	c, err := rack.New(rack.Config{Host: srv.URL, Token: "token", Calls: 5, Changes: 2})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)

	var calls sync.WaitGroup

	for range 20 {
		calls.Go(func() { _ = c.StartInstance(t.Context(), "i") })
	}

	for s.changes.Load() < 2 {
		time.Sleep(time.Millisecond)
	}

	for range 20 {
		calls.Go(func() { _, _ = c.ViewDisk(t.Context(), "d") })
	}

	for s.reads.Load() < 3 {
		time.Sleep(time.Millisecond)
	}

	close(s.open)
	calls.Wait()

	if most, changes := s.most.Load(), s.mostChanges.Load(); most > 5 || changes != 2 {
		t.Errorf("%d calls at once, %d of them changes", most, changes)
	}
}

// Rule: one answer of 503 may be about one object; three in a row, or one that asks
// for a pause, are about the rack. It is left alone then, nothing else than a call
// that was not made comes of that, and a good answer ends it.
func TestARackThatIsOverloadedIsLeftAlone(t *testing.T) {
	t.Parallel()

	var (
		requests atomic.Int64
		after    atomic.Pointer[string]
		well     atomic.Bool
	)

	none := ""
	after.Store(&none)

	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)

		if well.Load() {
			answer(w, http.StatusOK, `{"id":"d"}`)

			return
		}

		if *after.Load() != "" {
			w.Header().Set("Retry-After", *after.Load())
		}

		answer(w, http.StatusServiceUnavailable, `{"error_code":"ServiceNotAvailable","message":"Service Unavailable"}`)
	})

	for n := range int64(3) {
		if _, err := c.ViewDisk(t.Context(), "d"); rack.ClassOf(err) != rack.ClassBusy || requests.Load() != n+1 {
			t.Fatalf("call %d: %v after %d requests", n+1, err, requests.Load())
		}
	}

	err := c.StartInstance(t.Context(), "i")
	if rack.ClassOf(err) != rack.ClassFenced || rack.ClassOf(err).Unsure() || requests.Load() != 3 || rack.After(err) <= 0 || rack.After(err) > 3*time.Second {
		t.Fatalf("%v (%s) after %d requests, in %s", err, rack.ClassOf(err), requests.Load(), rack.After(err))
	}

	if !strings.Contains(err.Error(), ": Service Unavailable (HTTP 503, rack request req-1)") {
		t.Errorf("told as %q", err)
	}

	if err := c.Ping(t.Context()); rack.ClassOf(err) != rack.ClassBusy {
		t.Errorf("the probe got %v", err)
	}

	well.Store(true)

	for rack.After(err) > 0 {
		time.Sleep(rack.After(err))

		_, err = c.ViewDisk(t.Context(), "d")
	}

	if _, err := c.ViewDisk(t.Context(), "d"); err != nil {
		t.Errorf("after a good answer: %v", err)
	}

	well.Store(false)

	for _, form := range []string{"100", time.Now().Add(100 * time.Second).UTC().Format(http.TimeFormat)} {
		after.Store(&form)

		fresh, err := c.As(strings.TrimSuffix(c.Host(), "/"), "token")
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(fresh.Close)

		_, err = fresh.ViewDisk(t.Context(), "d")
		if got := rack.After(err); rack.ClassOf(err) != rack.ClassBusy || got < 95*time.Second || got > 100*time.Second {
			t.Errorf("%q is read as %s (%v)", form, got, err)
		}

		_, err = fresh.ViewDisk(t.Context(), "d")
		if got := rack.After(err); rack.ClassOf(err) != rack.ClassFenced || got < 95*time.Second || got > 111*time.Second {
			t.Errorf("%q makes a pause of %s (%v)", form, got, err)
		}
	}
}

// Rule: a change that is in flight when the process is told to end goes on, and no
// other begins; when there is no more time it is cut off. Reads are cut off at once,
// and whatever ends for another reason as well.
func TestAChangeInFlightOutlivesTheOrderToEnd(t *testing.T) {
	t.Parallel()

	s := &busy{open: make(chan struct{})}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(s.open) })

	c, err := rack.New(rack.Config{Host: srv.URL, Token: "token"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)

	stop, order := context.WithCancel(t.Context())
	end, late := context.WithCancel(t.Context())
	other, cancel := context.WithCancel(stop)
	longer := c.Outliving(stop, end)

	begin := func(f func() error) <-chan error {
		before := s.now.Load()
		done := make(chan error, 1)

		go func() { done <- f() }()

		for s.now.Load() == before {
			time.Sleep(time.Millisecond)
		}

		return done
	}

	create := func(ctx context.Context) func() error {
		return func() error {
			_, err := longer.CreateInstance(ctx, "p", oxide.InstanceCreate{})

			return err
		}
	}

	calledOff, read, change := begin(create(other)), begin(func() error { _, err := longer.ViewDisk(stop, "d"); return err }), begin(create(stop))

	cancel()

	if err := <-calledOff; rack.ClassOf(err) != rack.ClassLost {
		t.Errorf("one that was called off: %v", err)
	}

	order()

	if err := <-read; rack.ClassOf(err) != rack.ClassLost {
		t.Errorf("a read: %v", err)
	}

	before := s.now.Load()

	if err := create(stop)(); rack.ClassOf(err) != rack.ClassLost || s.now.Load() > before {
		t.Errorf("a new one: %v", err)
	}

	select {
	case err := <-change:
		t.Fatalf("the change was cut off: %v", err)
	case <-time.After(50 * time.Millisecond):
	}

	late()

	if err := <-change; rack.ClassOf(err) != rack.ClassLost {
		t.Errorf("the change ended with %v", err)
	}
}

// Rule: calls that begin after a change of the token carry the new one, those of the
// clients behind a gate too; no redirect takes it to another host.
func TestAClientBecomesAnother(t *testing.T) {
	t.Parallel()

	var seen atomic.Pointer[string]

	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(elsewhere.Close)

	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		auth := r.Header.Get("Authorization")
		seen.Store(&auth)
		http.Redirect(w, r, elsewhere.URL, http.StatusFound)
	})
	behind := c.Behind(&testGate{})

	next, err := c.As(strings.TrimSuffix(c.Host(), "/"), "next")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(next.Close)

	if _, err := behind.Me(t.Context()); err == nil || *seen.Load() == "Bearer next" {
		t.Errorf("%v with %q", err, *seen.Load())
	}

	c.Become(next)

	if _, err := behind.Me(t.Context()); err == nil || *seen.Load() != "Bearer next" {
		t.Errorf("%v with %q", err, *seen.Load())
	}
}
