package health

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))

	return w.Code, w.Body.String()
}

func TestReadyMeansEveryNeedIsMet(t *testing.T) {
	t.Parallel()

	b := NewBoard(zap.NewNop(), "omni", "rack")

	if code, body := get(t, b.Handler(), "/readyz"); code != 503 || !strings.Contains(body, "rack: not yet known") {
		t.Errorf("at start: %d %q", code, body)
	}

	if b.Err() != nil {
		t.Errorf("what is not yet known is told to Omni: %v", b.Err())
	}

	b.OK("omni")
	b.OK("rack")

	if code, body := get(t, b.Handler(), "/readyz"); code != 200 {
		t.Errorf("all met: %d %q", code, body)
	}

	b.Trouble("rack", "lost", "the rack is\n away")

	if code, body := get(t, b.Handler(), "/readyz"); code != 503 || body != "rack: the rack is away\n" {
		t.Errorf("in trouble: %d %q", code, body)
	}

	if code, _ := get(t, b.Handler(), "/healthz"); code != 200 {
		t.Errorf("a process in trouble is not alive: %d", code)
	}

	if err := b.Err(); err == nil || err.Error() != "rack: the rack is away" {
		t.Errorf("Omni is told %v", err)
	}
}

func TestHealthTellsTheRole(t *testing.T) {
	t.Parallel()

	b := NewBoard(zap.NewNop(), "omni")

	if code, body := get(t, b.Handler(), "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("without a role: %d %q", code, body)
	}

	b.Role("standby, host-a holds the lease, term 7")

	if code, body := get(t, b.Handler(), "/healthz"); code != 200 || body != "ok\nstandby, host-a holds the lease, term 7\n" {
		t.Errorf("as a standby: %d %q", code, body)
	}
}

func TestAChangeIsLoggedOnce(t *testing.T) {
	t.Parallel()

	core, logs := observer.New(zapcore.InfoLevel)
	b := NewBoard(zap.New(core), "rack")

	b.OK("rack")

	for range 5 {
		b.Trouble("rack", "busy", "request 123")
		b.Trouble("rack", "busy", "request 456")
	}

	b.Trouble("rack", "credentials", "renew the token")
	b.OK("rack")
	b.OK("rack")

	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Message)
	}

	want := "not ready: request 123|not ready: renew the token|well again"
	if strings.Join(got, "|") != want {
		t.Errorf("logged %q", got)
	}
}

// A note is for people: it is seen and logged once, and nothing restarts the
// daemon or takes it out of service for it.
func TestANoteIsSeenAndDoesNotMakeUnready(t *testing.T) {
	t.Parallel()

	core, logs := observer.New(zapcore.InfoLevel)
	b := NewBoard(zap.New(core), "rack")

	b.OK("rack")

	for range 3 {
		b.Note("machines", "stopped", "2 machines\n stopped")
	}

	if code, body := get(t, b.Handler(), "/readyz"); code != 200 || body != "ready\nnote: machines: 2 machines stopped\n" {
		t.Errorf("%d %q", code, body)
	}

	b.Trouble("rack", "lost", "away")

	if code, body := get(t, b.Handler(), "/readyz"); code != 503 || body != "rack: away\nnote: machines: 2 machines stopped\n" {
		t.Errorf("beside trouble: %d %q", code, body)
	}

	if err := b.Err(); err == nil || err.Error() != "rack: away; machines: 2 machines stopped" {
		t.Errorf("Omni is told %v", err)
	}

	b.OK("rack")
	b.Note("projects", "gone", "a project is gone")
	b.Withdraw("projects")
	b.Withdraw("rack")
	b.OK("machines")
	b.OK("machines")

	if err := b.Err(); err != nil {
		t.Errorf("it does not end: %v", err)
	}

	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Message)
	}

	if want := "needs a look: 2 machines stopped|not ready: away|well again|needs a look: a project is gone|well again"; strings.Join(got, "|") != want {
		t.Errorf("logged %q", got)
	}
}

func TestHealthIsServedUntilTheEnd(t *testing.T) {
	t.Parallel()

	b := NewBoard(zap.NewNop())

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)

	go func() { served <- b.Serve(ctx, l) }()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{}
	resp, err := transport.RoundTrip(req)

	if err != nil {
		t.Fatal(err)
	}

	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	transport.CloseIdleConnections()
	cancel()

	if err := <-served; err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("status %d, ended with %v", resp.StatusCode, err)
	}
}

// fakeRack answers its probes with the error that is set.
type fakeRack struct {
	err   atomic.Pointer[error]
	asked atomic.Int64
	pings atomic.Int64
}

func (f *fakeRack) Host() string { return "https://rack.test/" }

func (f *fakeRack) Ping(context.Context) error {
	f.pings.Add(1)

	if e := f.err.Load(); e != nil {
		return *e
	}

	return nil
}

func (f *fakeRack) Me(context.Context) (*oxide.CurrentUser, error) {
	f.asked.Add(1)

	if e := f.err.Load(); e != nil {
		return nil, *e
	}

	return &oxide.CurrentUser{}, nil
}

// A rack that is well is asked one question, twice a minute.
func TestARackThatIsWellIsAskedTwiceAMinute(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		b, r := NewBoard(zap.NewNop(), NeedRack), &fakeRack{}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})

		go func() {
			defer close(done)

			b.WatchRack(ctx, r)
		}()

		time.Sleep(time.Hour - time.Second)

		if asked, pings := r.asked.Load(), r.pings.Load(); asked != 120 || pings != 0 || !b.Ready() {
			t.Errorf("%d questions and %d pings in an hour, ready %v", asked, pings, b.Ready())
		}

		cancel()
		<-done
	})
}

// A rack that can not be reached keeps the daemon alive and not ready; it is
// asked at most once a minute after a while, and heals by itself.
func TestARackThatIsAwayIsProbedSlowlyAndHeals(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		b, r := NewBoard(zap.NewNop(), NeedRack), &fakeRack{}
		away := errors.New("connection refused")
		r.err.Store(&away)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})

		go func() {
			defer close(done)

			b.WatchRack(ctx, r)
		}()

		time.Sleep(time.Hour)

		if b.Ready() || !strings.Contains(b.Err().Error(), "https://rack.test/ can not be reached: connection refused") {
			t.Errorf("ready %v: %v", b.Ready(), b.Err())
		}

		if n := r.pings.Load(); n < 60 || n > 70 {
			t.Errorf("%d probes in an hour", n)
		}

		r.err.Store(nil)
		time.Sleep(probeAtMost)

		if !b.Ready() {
			t.Error("it does not heal")
		}

		cancel()
		<-done
	})
}

// A rack whose API is not open is told apart from one that can not be reached,
// and one that was there before from one that has never been.
func TestARackThatIsNotUpIsToldInItsOwnWords(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		b, r := NewBoard(zap.New(core), NeedRack), &fakeRack{}

		var refused error = &rack.Error{Op: "pinging", Class: rack.ClassLost, Message: "no answer from the rack: connection refused"}

		r.err.Store(&refused)

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})

		go func() {
			defer close(done)

			b.WatchRack(ctx, r)
		}()

		time.Sleep(time.Hour)

		yet := "the rack's API does not answer yet at https://rack.test/: connection refused"
		if b.Ready() || !strings.Contains(b.Err().Error(), yet) || len(b.Err().Error()) > 200 {
			t.Errorf("before it was ever there: %v", b.Err())
		}

		r.err.Store(nil)
		time.Sleep(probeAtMost)

		if !b.Ready() {
			t.Error("it does not go on by itself")
		}

		r.err.Store(&refused)
		time.Sleep(probeAtMost)

		if b.Ready() || !strings.Contains(b.Err().Error(), "does not answer any more at https://rack.test/") {
			t.Errorf("after it was there: %v", b.Err())
		}

		if n := logs.FilterMessageSnippet(yet).Len(); n != 1 {
			t.Errorf("told %d times", n)
		}

		cancel()
		<-done
	})
}
