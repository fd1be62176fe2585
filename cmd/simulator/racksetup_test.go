package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// twoSleds is a rack that comes up fast and has all that a rack has.
const twoSleds = `
name: two
subnet: fd00:1122:3344:100::/56
dns_zone: rack.example.com
external_addresses: {api: [198.51.100.10], dns: [198.51.100.20]}
certificates: [rack.example.com]
address_pools: [{name: office, version: v4, default: true, ranges: [{first: 198.18.0.1, last: 198.18.0.9}]}]
sleds:
  - {serial: S1, cpus: 64, memory: 512, disks: [{serial: D1, size: 1000}, {serial: D2, size: 1000}, {serial: D3, size: 1000}]}
  - {serial: S2, cpus: 64, memory: 512, disks: [{serial: E1, size: 1000}, {serial: E2, size: 1000}, {serial: E3, size: 1000, reports: LATE}]}
services: {internal_dns: 1, external_dns: 1, database: 1, control_plane: 1, pantry: 1, metrics: 1}
`

// rackProcess is the real program.
type rackProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	err   bytes.Buffer
}

// programs is where the simulator is built, once, for all tests that need it as
// a program.
var programs struct {
	dir  string
	once sync.Once
	path string
	err  error
}

func buildProgram() (string, error) {
	dir, err := os.MkdirTemp("", "oipo-simulator-")
	if err != nil {
		return "", err
	}

	programs.dir = dir
	path := filepath.Join(dir, "simulator")

	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}

	return path, nil
}

func TestMain(m *testing.M) {
	code := m.Run()

	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}

	os.Exit(code)
}

func buildSimulator(t *testing.T) string {
	t.Helper()

	programs.once.Do(func() { programs.path, programs.err = buildProgram() })

	if programs.err != nil {
		t.Fatalf("building: %v", programs.err)
	}

	return programs.path
}

// describe writes a description in which the last pool reports as given.
func describe(t *testing.T, late string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "rack.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(twoSleds, "LATE", late, 1)), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func startRack(t *testing.T, program string, args ...string) *rackProcess {
	t.Helper()

	p := &rackProcess{t: t}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), program,
		append([]string{"rack", "--token", "secret", "--setup-time-scale", "0.02", "--fast"}, args...)...)
	p.cmd.Stderr = &p.err

	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	p.lines = bufio.NewScanner(out)

	t.Cleanup(p.kill)

	return p
}

// until reads lines to the first with the given part, and answers that.
func (p *rackProcess) until(part string) string {
	p.t.Helper()

	deadline := time.AfterFunc(30*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer deadline.Stop()

	var seen []string

	for p.lines.Scan() {
		if seen = append(seen, p.lines.Text()); strings.Contains(p.lines.Text(), part) {
			return p.lines.Text()
		}
	}

	p.t.Fatalf("it ended without %q:\n%s\n%s", part, strings.Join(seen, "\n"), p.err.String())

	return ""
}

func (p *rackProcess) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// Invariant: a rack whose process is killed at any step of its coming up, and is
// started again, has the plan that it had stored, and is the rack that it was.
func TestARackThatIsKilledWhileItComesUpIsTheSameRack(t *testing.T) {
	t.Parallel()

	program := buildSimulator(t)
	args := []string{"--listen", "127.0.0.1:0", "--rack", describe(t, "1s")}

	for _, point := range []string{
		"2 sleds come up", "waiting for storage pools: sled S2 reports 2 of 3", "every sled reports", "sled plan made and stored", "sled S2 is",
		"service plan made and stored", "internal DNS server runs", "names are entered in DNS", "database runs", "control-plane runs",
		"hand-over: the control plane has taken the rack", "hand-over marked as complete", "ready: the control plane", "ready rack",
	} {
		data := t.TempDir()
		with := append([]string{"--data", data}, args...)

		first := startRack(t, program, with...)
		first.until(point)
		first.kill()

		before := kept(t, data)

		second := startRack(t, program, with...)
		ready := second.until("ready rack endpoint=")
		after := kept(t, data)

		for name, raw := range before {
			// The database and the marker are written once too.
			if strings.HasPrefix(name, "sled.") || strings.HasPrefix(name, "dns.") {
				continue
			}

			if !bytes.Equal(raw, after[name]) {
				t.Errorf("killed at %q: %s has changed", point, name)
			}
		}

		var ids [3]struct {
			RackID string `json:"rack_id"`
		}

		for i, name := range []string{"sled-plan.json", "database.json", "handed-over.json"} {
			if err := json.Unmarshal(after[name], &ids[i]); err != nil || ids[i].RackID == "" || ids[i] != ids[0] {
				t.Errorf("killed at %q: %s is of rack %q, %v", point, name, ids[i].RackID, err)
			}
		}

		serves(t, ready)
		second.kill()
	}
}

// kept are the files of a rack's directory.
func kept(t *testing.T, dir string) map[string][]byte {
	t.Helper()

	out := map[string][]byte{}

	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}

		out[path], err = os.ReadFile(filepath.Join(dir, path))

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// serves uses the API of a ready line: its pools are those of the description.
func serves(t *testing.T, ready string) {
	t.Helper()

	client, err := oxide.NewClient(oxide.WithHost(strings.TrimPrefix(strings.Fields(ready)[2], "endpoint=")), oxide.WithToken("secret"))
	if err != nil {
		t.Fatal(err)
	}

	if pools, err := client.IpPoolListAllPages(t.Context(), oxide.IpPoolListParams{}); err != nil || len(pools) != 1 || pools[0].Name != "office" {
		t.Errorf("pools: %+v, %v", pools, err)
	}
}

// Until the hand-over the API refuses connections, whatever inside answers; what
// the rack waits for can be read and mended.
func TestTheAPIIsClosedUntilTheRackIsHandedOver(t *testing.T) {
	t.Parallel()

	api, setup, data := freeAddress(t), freeAddress(t), t.TempDir()
	program := buildSimulator(t)

	p := startRack(t, program, "--listen", api, "--setup-listen", setup, "--data", data, "--rack", describe(t, "never"))
	p.until("waiting for storage pools: sled S2 reports 2 of 3")

	if _, err := get(t, "http://"+api+"/v1/ping"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the API: %v", err)
	}

	if body, err := get(t, "http://"+setup+"/setup"); err != nil || !strings.Contains(body, `"waiting":"waiting for storage pools: sled S2 reports 2 of 3"`) {
		t.Errorf("setup: %s, %v", body, err)
	}

	// Another rack in the same directory would carry out the same plan.
	second := startRack(t, program, "--listen", "127.0.0.1:0", "--data", data, "--rack", describe(t, "never"))
	if err := second.cmd.Wait(); err == nil || !strings.Contains(second.err.String(), "another rack runs in it") {
		t.Errorf("a second rack: %v, %s", err, second.err.String())
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+setup+"/setup/sleds/S2/disks/E3", nil)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	if resp.Body.Close(); resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.Status)
	}

	inside := p.until("it answers inside, at ")
	_, url, _ := strings.Cut(inside, "it answers inside, at ")
	url, _, _ = strings.Cut(url, ",")

	if body, err := get(t, url+"/health"); err != nil || !strings.Contains(body, `"state"`) {
		t.Errorf("inside: %s, %v", body, err)
	}

	serves(t, p.until("ready rack endpoint="))

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, p.err.String())
	}
}

// A rack that is told to end while it comes up ends well.
func TestARackThatComesUpEndsInGoodOrder(t *testing.T) {
	t.Parallel()

	p := startRack(t, buildSimulator(t), "--listen", "127.0.0.1:0", "--rack", describe(t, "never"))
	p.until("waiting for storage pools")

	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, p.err.String())
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer l.Close()

	return l.Addr().String()
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}

	defer resp.Body.Close()

	var body bytes.Buffer

	_, err = body.ReadFrom(resp.Body)

	return body.String(), err
}
