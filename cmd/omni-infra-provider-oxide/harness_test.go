package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/omni/client/api/omni/specs"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// binary is the daemon under test, built once.
var binary string

// parallelTests is how many tests run at once unless -parallel says so: nearly
// all of their time is what machines and daemons wait for.
const parallelTests = 4

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	flag.Parse()

	told := false

	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "test.parallel" })

	if !told {
		if err := flag.Set("test.parallel", strconv.Itoa(parallelTests)); err != nil {
			panic(err)
		}
	}

	dir, err := os.MkdirTemp("", "oipo-test-")
	if err != nil {
		panic(err)
	}

	defer os.RemoveAll(dir) //nolint:errcheck // only litter is left otherwise

	binary = filepath.Join(dir, "omni-infra-provider-oxide")

	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the daemon: %v\n%s", err, out)

		return 1
	}

	return m.Run()
}

// place is a simulated site and what a test does with it.
type place struct {
	*site.Site

	t *testing.T
}

func newPlace(t *testing.T, cfg site.Config) *place {
	t.Helper()

	if os.Getenv("OIPO_TEST_LOG") != "" {
		cfg.Log = zaptest.NewLogger(t, zaptest.Level(zap.DebugLevel))
	}

	s, err := site.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the site: %v", err)
		}
	})

	return &place{Site: s, t: t}
}

// daemon is one process of the daemon.
type daemon struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	err  error

	mu  sync.Mutex
	out bytes.Buffer
	// health is the address of its probes.
	health string
}

// Write collects what the daemon logs.
func (d *daemon) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.out.Write(p)
}

func (d *daemon) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.out.String()
}

// env is a right configuration of the daemon for the provider ID.
func (p *place) env(id string) map[string]string {
	p.t.Helper()

	key, err := p.ProviderKey(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}

	return map[string]string{
		"OMNI_ENDPOINT": p.Omni.Endpoint(), "OMNI_SERVICE_ACCOUNT_KEY": key, "PROVIDER_ID": id,
		"OXIDE_HOST": p.RackURL, "OXIDE_TOKEN": p.RackToken,
		// Shorter than in the field, as everything here is; the lease no shorter than
		// a busy machine can renew it.
		"SCRATCH_GRACE": "3s", "SETTLE_TIME": "3s",
		"LEASE_DURATION": "8s", "LEASE_RENEW_EVERY": "1s", "LEASE_STOP_AFTER": "6s",
	}
}

// start starts a daemon and ends it with the test.
func start(t *testing.T, env map[string]string) *daemon {
	t.Helper()

	return startBy(t, env, binary)
}

// startBy starts a daemon by a command that becomes it.
func startBy(t *testing.T, env map[string]string, name string, args ...string) *daemon {
	t.Helper()

	d := &daemon{t: t, done: make(chan struct{}), health: freeAddress(t)}
	d.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	d.cmd.Env = []string{"HOME=" + t.TempDir(), "HEALTH_ADDRESS=" + d.health}

	for k, v := range env {
		d.cmd.Env = append(d.cmd.Env, k+"="+v)
	}

	d.cmd.Stdout, d.cmd.Stderr = d, d

	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()

	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()

		<-d.done

		if t.Failed() {
			t.Logf("log of the daemon:\n%s", d.log())
		}
	})

	return d
}

// lastPort is the last one that freeAddress gave out.
var lastPort atomic.Uint32

// freeAddress is one where nobody listens, outside of the range from which
// systems take the ports of connections: one of those may be taken again before
// the daemon has it.
func freeAddress(t *testing.T) string {
	t.Helper()

	const first, span = 16000, 16000

	for range 100 {
		port := first + (uint32(os.Getpid())*97+lastPort.Add(1))%span

		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			address := l.Addr().String()
			_ = l.Close()

			return address
		}
	}

	t.Fatal("no free port")

	return ""
}

// kill ends the daemon with SIGKILL.
func (d *daemon) kill() {
	d.t.Helper()

	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}

	<-d.done
}

// stop ends the daemon with SIGTERM and answers its exit code.
func (d *daemon) stop() int {
	d.t.Helper()

	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}

	return d.wait()
}

func (d *daemon) wait() int {
	d.t.Helper()

	select {
	case <-d.done:
	case <-time.After(30 * time.Second):
		d.t.Fatal("the daemon did not end in 30 s")
	}

	if e, ok := errors.AsType[*exec.ExitError](d.err); ok {
		return e.ExitCode()
	}

	return 0
}

// ready asks the daemon's probe.
func (d *daemon) ready() (bool, string) {
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.health+"/readyz", nil)
	if err != nil {
		d.t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err.Error()
	}

	defer resp.Body.Close()

	var body bytes.Buffer

	_, _ = body.ReadFrom(resp.Body)

	return resp.StatusCode == http.StatusOK, body.String()
}

// entries are the daemon's log lines at or above a level: warn or error.
func (d *daemon) entries(levels ...string) []string {
	var out []string

	for line := range strings.Lines(d.log()) {
		var e struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
		}

		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}

		for _, l := range levels {
			if e.Level == l {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}

	return out
}

// eventually waits for a condition.
func (p *place) eventually(what string, holds func() bool) {
	p.t.Helper()

	deadline := time.Now().Add(4 * time.Minute)

	for !holds() {
		if time.Now().After(deadline) {
			p.t.Fatalf("waited 4 min for %s; requests: %+v", what, p.requests())
		}

		select {
		case <-p.t.Context().Done():
			p.t.Fatal(p.t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *place) requests() []operator.Request {
	p.t.Helper()

	r, err := p.Operator.Requests(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}

	return r
}

func (p *place) inventory() operator.Rack {
	p.t.Helper()

	r, err := p.Operator.Inventory(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}

	return r
}

// set asks for n machines of a request set.
func (p *place) set(id, provider string, n int32, change ...func(*specs.MachineRequestSetSpec)) {
	p.t.Helper()

	spec := &specs.MachineRequestSetSpec{
		ProviderId: provider, MachineCount: n, TalosVersion: "1.13.5", ProviderData: "project: " + site.Project + "\n",
	}

	for _, c := range change {
		c(spec)
	}

	if err := p.Operator.RequestSet(p.t.Context(), id, spec); err != nil {
		p.t.Fatal(err)
	}
}

// joined counts the joined machines of a set.
func (p *place) joined(set string) int {
	n := 0

	for _, r := range p.requests() {
		if r.Set == set && r.Joined && r.Stage == "PROVISIONED" {
			n++
		}
	}

	return n
}

// waitRegistered waits until the provider has introduced itself.
func (p *place) waitRegistered(id string) {
	p.t.Helper()

	p.eventually("provider "+id+" to register", func() bool {
		ok, err := p.Operator.ProviderRegistered(p.t.Context(), id)

		return err == nil && ok
	})
}

func (p *place) waitJoined(set string, n int) {
	p.t.Helper()

	p.eventually(fmt.Sprintf("%d machines of %s to join", n, set), func() bool { return p.joined(set) == n })
}

// waitNothingLeft waits until the rack holds nothing but images, and Omni no
// request.
func (p *place) waitNothingLeft() {
	p.t.Helper()

	p.eventually("everything to be removed", func() bool {
		return len(p.requests()) == 0 && p.inventory().Leftovers() == 0
	})
}

// uploads is the number of imports that were begun.
func (p *place) uploads() int { return p.Rack.CallCount("disk_bulk_write_import_start") }
