package systemd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}

		return "", false
	}
}

// socket listens as systemd does.
func socket(t *testing.T) (string, <-chan string) {
	t.Helper()

	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "notify")

	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}

	got, done := make(chan string, 100), make(chan struct{})

	go func() {
		defer close(done)

		buf := make([]byte, 4096)

		for {
			n, err := l.Read(buf)
			if err != nil {
				return
			}

			got <- string(buf[:n])
		}
	}()

	t.Cleanup(func() {
		_ = l.Close()

		<-done

		_ = os.RemoveAll(dir)
	})

	return path, got
}

func TestWithoutSystemdNothingIsTold(t *testing.T) {
	t.Parallel()

	n, err := New(env())
	if err != nil || n != nil {
		t.Fatalf("%v, %v", n, err)
	}

	n.Run(t.Context(), func() string { t.Error("asked"); return "" }, func(err error) { t.Error(err) })

	if err := n.Send("READY=1"); err != nil {
		t.Error(err)
	}
}

func TestAWrongEnvironmentIsTold(t *testing.T) {
	t.Parallel()

	for want, lookup := range map[string]func(string) (string, bool){
		"NOTIFY_SOCKET is": env("NOTIFY_SOCKET", "relative"),
		"WATCHDOG_USEC is": env("NOTIFY_SOCKET", "/x", "WATCHDOG_USEC", "-1"),
	} {
		if _, err := New(lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}

	n, err := New(env("NOTIFY_SOCKET", "/x", "WATCHDOG_USEC", "1000000", "WATCHDOG_PID", strconv.Itoa(os.Getpid()+1)))
	if err != nil || n.watchdog != 0 {
		t.Errorf("the watchdog of another process: %v, %v", n, err)
	}
}

// Invariant: systemd is told that the daemon is ready, its status when that
// changes, that it lives, and that it stops; and nothing more while its status can
// not be had.
func TestSystemdIsToldOfALife(t *testing.T) {
	t.Parallel()

	path, got := socket(t)

	n, err := New(env("NOTIFY_SOCKET", path, "WATCHDOG_USEC", "20000"))
	if err != nil {
		t.Fatal(err)
	}

	var status atomic.Pointer[string]

	set := func(s string) { status.Store(&s) }
	set("standing by")

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	stuck, release := make(chan struct{}), make(chan struct{})

	go func() {
		defer close(done)

		n.Run(ctx, func() string {
			if *status.Load() == "stuck" {
				stuck <- struct{}{}

				<-release
			}

			return *status.Load()
		}, func(err error) { t.Error(err) })
	}()

	next := func(want string) {
		t.Helper()

		for {
			select {
			case m := <-got:
				if strings.Contains(m, want) {
					return
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("never told %q", want)
			}
		}
	}

	if first := <-got; first != "READY=1\nSTATUS=standing by" {
		t.Errorf("first %q", first)
	}

	next("WATCHDOG=1")
	set("at\nwork")
	next("STATUS=at work")
	set("stuck")
	<-stuck

	for len(got) > 0 {
		<-got
	}

	// Ten intervals of the watchdog.
	select {
	case m := <-got:
		t.Errorf("a daemon at a standstill says %q", m)
	case <-time.After(100 * time.Millisecond):
	}

	set("at work")
	close(release)
	next("WATCHDOG=1")
	cancel()
	<-done
	next("STOPPING=1")
}

func TestASocketThatIsGoneIsToldOnce(t *testing.T) {
	t.Parallel()

	n, err := New(env("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"), "WATCHDOG_USEC", "2000"))
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	failures := 0

	n.Run(ctx, func() string { return "" }, func(error) { failures++ })

	if failures != 1 {
		t.Errorf("told %d times", failures)
	}
}
