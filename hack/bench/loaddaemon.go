package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const daemonPackage = "github.com/oxidecomputer/omni-infra-provider-oxide/cmd/omni-infra-provider-oxide"

// buildDaemon builds the daemon into a directory.
func buildDaemon(ctx context.Context, dir string) (string, error) {
	name := filepath.Join(dir, "daemon")

	return name, build(ctx, name, daemonPackage)
}

// build builds a program as a release is built.
func build(ctx context.Context, name, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", name, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")

	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", pkg, err, bytes.TrimSpace(out))
	}

	return nil
}

// loadDaemon is a process of the daemon.
type loadDaemon struct {
	cmd    *exec.Cmd
	health string // address of its probes
	began  time.Time
	done   chan struct{}
	err    error

	mu  sync.Mutex
	log bytes.Buffer // its end
}

// keptLog bounds what is kept of the daemon's log, in bytes.
const keptLog = 1 << 20

// Write keeps the end of the log.
func (d *loadDaemon) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.log.Len() > keptLog {
		d.log.Next(keptLog / 2)
	}

	return d.log.Write(p)
}

// lastLines are the end of the log, for an error.
func (d *loadDaemon) lastLines() string {
	d.mu.Lock()
	defer d.mu.Unlock()

	text := d.log.String()

	return text[max(0, len(text)-4000):]
}

func startDaemon(ctx context.Context, binary string, env []string) (*loadDaemon, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	d := &loadDaemon{health: l.Addr().String(), done: make(chan struct{}), cmd: exec.CommandContext(context.WithoutCancel(ctx), binary)}
	if err := l.Close(); err != nil {
		return nil, err
	}

	d.cmd.Env = append([]string{"HOME=" + os.TempDir(), "HEALTH_ADDRESS=" + d.health}, env...)
	d.cmd.Stdout, d.cmd.Stderr = d, d
	d.began = time.Now()

	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}

	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()

	return d, nil
}

// end sends a signal and waits.
func (d *loadDaemon) end(s os.Signal) error {
	select {
	case <-d.done:
		return fmt.Errorf("the daemon ended by itself: %w: %s", d.err, d.lastLines())
	default:
	}

	if err := d.cmd.Process.Signal(s); err != nil {
		return err
	}

	select {
	case <-d.done:
		return nil
	case <-time.After(time.Minute):
		return errors.Join(errors.New("the daemon does not end"), d.cmd.Process.Kill())
	}
}

// alive is nil while the daemon runs.
func (d *loadDaemon) alive() error {
	select {
	case <-d.done:
		return fmt.Errorf("the daemon ended: %w: %s", d.err, d.lastLines())
	default:
		return nil
	}
}

// ready asks the probe.
func (d *loadDaemon) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.health+"/readyz", nil)
	if err != nil {
		return false
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}

	_ = resp.Body.Close()

	return resp.StatusCode == http.StatusOK
}

// cpu is the processor time that the daemon has used.
func (d *loadDaemon) cpu() (time.Duration, error) {
	if state := d.cmd.ProcessState; state != nil {
		return state.UserTime() + state.SystemTime(), nil
	}

	text, err := os.ReadFile("/proc/" + strconv.Itoa(d.cmd.Process.Pid) + "/stat")
	if err != nil {
		return 0, err
	}

	// The name, in parentheses, may hold anything; user and system time are the
	// 12th and 13th fields after it, in hundredths of a second.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)

	if len(fields) < 13 {
		return 0, errors.New("this system does not tell a process's times")
	}

	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}

	system, err := strconv.ParseInt(fields[12], 10, 64)

	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// anonymous is the daemon's RssAnon in bytes.
func (d *loadDaemon) anonymous() (int64, error) { return anonymousOf(d.cmd.Process.Pid) }

// peak watches the memory until the function that it returns is called, which
// answers the greatest RssAnon in bytes.
func (d *loadDaemon) peak() func() int64 {
	var (
		stop  = make(chan struct{})
		group sync.WaitGroup
		most  int64
	)

	group.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()

		for {
			if n, err := d.anonymous(); err == nil {
				most = max(most, n)
			}

			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})

	return func() int64 {
		close(stop)
		group.Wait()

		return most
	}
}
