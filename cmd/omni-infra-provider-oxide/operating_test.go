package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/omni/client/api/omni/specs"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// get reads from the daemon's HTTP address.
func (d *daemon) get(path string) string {
	d.t.Helper()

	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.health+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}

	defer resp.Body.Close()

	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Error(err)
	}

	return string(text)
}

// Invariant: while machines come and go as they should, nothing is logged at warn
// or above; and what is logged of a machine has its IDs.
func TestAHealthyRunIsQuietAndItsMachinesAreNamed(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	d := start(t, env)

	p.set("workers", "oxide", 3)
	p.waitJoined("workers", 3)

	for line := range strings.Lines(d.log()) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		if e["msg"] == "instance created" || e["msg"] == "instance is running" {
			if e["omni.request.id"] == nil || e["oxide.instance.id"] == nil || e["oxide.image.id"] == nil {
				t.Errorf("IDs are missing: %s", line)
			}

			if n := strings.Count(line, `"omni.request.id"`); n != 1 {
				t.Errorf("the request stands there %d times: %s", n, line)
			}
		}
	}

	// The status, from outside the daemon.
	code, out, errs := invoke(t, env, "status", "--output", "json")

	var o provider.Overview
	if err := json.Unmarshal([]byte(out), &o); err != nil || code != 0 || len(o.Requests) != 3 || o.Lease == nil || o.Lease.Holder == "" || o.Owner == "" {
		t.Errorf("exit code %d, %v\n%s%s", code, err, out, errs)
	}

	for _, r := range o.Requests {
		if r.Stage != "provisioned" || r.Machine == "" || r.InstanceID == "" || r.Project != site.Project {
			t.Errorf("%+v", r)
		}
	}

	if code, out, errs = invoke(t, env, "status"); code != 0 || !strings.Contains(out, "Requests: 3 provisioned") || !strings.Contains(out, "holds the lease, term 1") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}

	watch := startBy(t, env, binary, "status", "--watch", "--every", "500ms")
	p.eventually("it to be shown three times", func() bool { return strings.Count(watch.log(), "Requests: 3 provisioned") >= 3 })

	if code := watch.stop(); code != 0 || strings.Contains(watch.log(), "\x1b") {
		t.Errorf("exit code %d\n%q", code, watch.log())
	}

	metrics := d.get("/metrics")
	for _, want := range []string{`oipo_lease_held 1`, `oipo_image_uploads_total{result="ok"} 1`, `oipo_ready 1`, `oipo_request_provision_duration_seconds_count 3`} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	if loud := d.entries("warn", "error", "dpanic", "panic", "fatal"); len(loud) > 0 {
		t.Errorf("a healthy run says\n%s", strings.Join(loud, "\n"))
	}
}

func TestTheLevelOfTheLogIsSetBySignals(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	d := start(t, p.env("oxide"))

	p.waitRegistered("oxide")

	signal := func(s syscall.Signal, says string) {
		t.Helper()

		if err := d.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}

		p.eventually(says, func() bool { return strings.Contains(d.log(), says) })
	}

	signal(syscall.SIGUSR1, `"level":"debug"`)
	p.eventually("a line at debug", func() bool { return len(d.entries("debug")) > 0 })
	signal(syscall.SIGUSR2, `"msg":"the log's level is set","level":"info"`)
}

// Invariant: systemd is told that the daemon is ready, and how it is.
func TestSystemdIsTold(t *testing.T) {
	t.Parallel()

	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = l.Close() })

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	env["NOTIFY_SOCKET"], env["WATCHDOG_USEC"] = l.LocalAddr().String(), "200000"
	d := start(t, env)

	heard := func(want string) {
		t.Helper()

		_ = l.SetReadDeadline(time.Now().Add(60 * time.Second))

		for buf := make([]byte, 4096); ; {
			n, err := l.Read(buf)
			if err != nil {
				t.Fatalf("never told %q: %v", want, err)
			}

			if strings.Contains(string(buf[:n]), want) {
				return
			}
		}
	}

	heard("READY=1")
	heard("WATCHDOG=1")
	heard("STATUS=holder of the lease, term 1: well")

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	heard("STOPPING=1")
}

// files are those of a bundle by name, without its directory.
func files(t *testing.T, archive string) map[string]string {
	t.Helper()

	z, err := gzip.NewReader(strings.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]string{}

	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}

		if err != nil {
			t.Fatal(err)
		}

		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}

		out[filepath.Base(h.Name)] = string(text)
	}
}

// tap boots guests and remembers their user-data.
type tap struct {
	rack.Guests

	mu   sync.Mutex
	seen []string
}

// Boot implements rack.Booter.
func (b *tap) Boot(ctx context.Context, hw guest.Hardware, log *zap.Logger) guest.Exit {
	// The disk holds it in one piece.
	if at := bytes.Index(hw.CIData, []byte("apiVersion:")); at >= 0 {
		text, _, _ := bytes.Cut(hw.CIData[at:], []byte{0})

		b.mu.Lock()
		b.seen = append(b.seen, string(text))
		b.mu.Unlock()
	}

	return b.Guests.Boot(ctx, hw, log)
}

func (b *tap) userData() []string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return slices.Clone(b.seen)
}

// brokenClass has a mistake in it.
func brokenClass(s *specs.MachineRequestSetSpec) { s.ProviderData = "project: talos\ncpus: 9999\n" }

// refusedTalos is a version whose image the factory refuses.
const refusedTalos = "1.13.0"

// secret is what nobody may ever see, and what it is.
type secret struct{ name, text string }

// forms are the ways in which a secret could stand in a text: plain, in base64 at
// each of its alignments, and as JSON has it.
func (s secret) forms() []string {
	out := []string{s.text}

	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(bytes.Repeat([]byte{'x'}, shift), s.text...))
		// Without the ends, which depend on what is around.
		if len(encoded) > 16 {
			out = append(out, encoded[4:len(encoded)-4])
		}
	}

	return out
}

// everyAnswer is a fault of each kind and class, each of which strikes one create.
func everyAnswer() []rack.Fault {
	var out []rack.Fault

	for status, code := range map[int]string{
		400: "InvalidRequest", 401: "Unauthorized", 403: "Forbidden", 404: "ObjectNotFound", 406: "Not Acceptable", 409: "Conflict", 410: "Gone",
		429: "", 500: "Internal", 502: "Internal", 503: "ServiceNotAvailable", 504: "Internal", 507: "InsufficientCapacity",
	} {
		out = append(out, rack.Fault{Action: rack.ActionError, Operation: "instance_create", Status: status, Code: code, Message: "it is so", Count: 1})
	}

	for _, action := range []rack.Action{
		rack.ActionProxyPage, rack.ActionReset, rack.ActionLoseAnswer, rack.ActionErrorAfter, rack.ActionTruncate, rack.ActionWrongContent,
	} {
		out = append(out, rack.Fault{Action: action, Operation: "instance_create", Count: 1})
	}

	return append(out,
		rack.Fault{Action: rack.ActionUnknownState, Operation: "instance_view", Value: "dancing", Count: 2},
		rack.Fault{Action: rack.ActionStripHeader, Operation: "current_user_view", Header: "Authorization", Count: 1},
		rack.Fault{Action: rack.ActionError, Operation: "ping", Status: 400, Message: "server does not support this API version: 2026060800", Count: 1},
	)
}

// Invariant: no secret is ever seen: not in the log at debug, a status, a metric, a
// probe, the stacks, a bundle or what commands print, whatever goes wrong.
func TestNoSecretIsEverSeen(t *testing.T) {
	t.Parallel()

	tap := &tap{}
	p := newPlace(t, site.Config{Rack: rack.Config{Booter: tap}})
	env := p.env("oxide")
	env["LOG_LEVEL"] = "debug"
	env["IMAGE_FACTORY_TOKEN"] = "factory-token-that-nobody-sees"
	// Each fault is to meet another request, all at once.
	env["PROVISIONER_CONCURRENCY"], env["MAX_CREATES"] = "40", "20"
	env["IMAGE_FACTORY_URL"] = p.Factory.URL()

	for _, f := range []rack.Fault{
		{Action: rack.ActionError, Operation: "instance_create", Status: 507, Code: "InsufficientCapacity", Message: "Insufficient capacity: no sled", Count: 1},
		{Operation: "instance_create", Action: rack.ActionLoseAnswer, Skip: 1, Count: 1},
		{Action: rack.ActionError, Operation: "instance_start", Status: 500, Code: "Internal", Message: "Internal Server Error", Count: 1},
		{Action: rack.ActionError, Operation: "disk_bulk_write_import", Status: 503, Count: 5},
		{Action: rack.ActionError, Operation: "disk_finalize_import", Status: 500, Count: 1},
		{Action: rack.ActionError, Operation: "image_create", Status: 403, Code: "Forbidden", Message: "Forbidden", Count: 1},
		{Action: rack.ActionError, Operation: "instance_stop", Status: 409, Message: "busy", Count: 1},
		{Operation: "instance_delete", Action: rack.ActionReset, Count: 1},
	} {
		if _, err := p.Rack.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}

	d := start(t, env)
	env["HEALTH_ADDRESS"] = d.health

	p.set("workers", "oxide", 2)
	p.set("broken", "oxide", 1, brokenClass)

	var seen strings.Builder

	look := func() {
		for _, r := range p.requests() {
			fmt.Fprintf(&seen, "%+v\n", r)
		}
	}

	p.eventually("two machines to join", func() bool {
		look()

		return p.joined("workers") == 2
	})

	// All of them by `make secrets`, which takes minutes, and some in each run.
	faults, machines := everyAnswer(), int32(24)
	if os.Getenv("OIPO_SECRETS") != "full" {
		rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		faults, machines = faults[:3], 4
	}

	for _, f := range faults {
		if _, err := p.Rack.AddFault(f); err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
	}

	creates := p.Rack.CallCount("instance_create")

	p.set("more", "oxide", machines)
	p.set("image", "oxide", 1, func(s *specs.MachineRequestSetSpec) { s.TalosVersion = refusedTalos })
	p.Factory.Inject(factory.Fault{Kind: factory.KindStatus, Match: refusedTalos, Status: http.StatusUnauthorized})
	p.Omni.DropConnections()

	// The operator's own connection was among them.
	p.eventually("Omni to be reached again", func() bool {
		_, err := p.Operator.Requests(t.Context())

		return err == nil
	})

	p.eventually("each error to strike", func() bool {
		look()

		return p.Rack.CallCount("instance_create") > creates+len(faults) && strings.Contains(seen.String(), "refused access (401)")
	})

	secrets := []secret{
		{"rack token", env["OXIDE_TOKEN"]}, {"Omni key", env["OMNI_SERVICE_ACCOUNT_KEY"]}, {"factory token", env["IMAGE_FACTORY_TOKEN"]},
	}

	decoded, err := base64.StdEncoding.DecodeString(env["OMNI_SERVICE_ACCOUNT_KEY"])
	if err != nil {
		t.Fatal(err)
	}

	var account struct {
		PGPKey string `json:"pgp_key"`
	}
	if err := json.Unmarshal(decoded, &account); err != nil {
		t.Fatal(err)
	}

	for i, line := range strings.Split(account.PGPKey, "\n") {
		if len(line) > 40 {
			secrets = append(secrets, secret{fmt.Sprint("PGP key, line ", i), line})
		}
	}

	userData := tap.userData()
	if len(userData) == 0 {
		t.Fatal("no user-data was seen")
	}

	for _, text := range userData {
		secrets = append(secrets, secret{"user-data", text})

		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n\"=?&", r) }) {
			if strings.HasPrefix(word, "v1:") || strings.HasPrefix(word, "v2:") || len(word) > 40 && !strings.Contains(word, "/") {
				secrets = append(secrets, secret{"join token", word})
			}
		}
	}

	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/debug/recent", "/debug/goroutines"} {
		seen.WriteString(d.get(path))
	}

	for _, args := range [][]string{
		{"doctor"}, {"doctor", "--output", "json"}, {"status"}, {"status", "--output", "json"}, {"orphans", "list"}, {"--help"},
		{"--log-level", "never"},
	} {
		_, out, errs := invoke(t, env, args...)
		seen.WriteString(out + errs)
	}

	code, archive, errs := invoke(t, env, "diagnose")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, errs)
	}

	bundle := files(t, archive)

	for _, name := range []string{
		"versions.txt", "config.txt", "doctor.json", "status.json", "stored.json", "objects.json", "metrics.txt", "health.txt",
		"recent.json", "goroutines.txt", "errors.txt",
	} {
		if bundle[name] == "" {
			t.Errorf("the bundle has no %s", name)
		}
	}

	if bundle["errors.txt"] != "nothing is missing\n" {
		t.Errorf("the bundle lacks %s", bundle["errors.txt"])
	}

	if !strings.Contains(bundle["objects.json"], `"kind": "instance"`) || !strings.Contains(bundle["stored.json"], `"instanceId"`) ||
		!strings.Contains(bundle["recent.json"], "rack request") {
		t.Errorf("objects %.300s\nstored %.300s\nrecent %.300s", bundle["objects.json"], bundle["stored.json"], bundle["recent.json"])
	}

	for _, text := range bundle {
		seen.WriteString(text)
	}

	for _, id := range []string{"workers", "broken", "more", "image"} {
		p.set(id, "oxide", 0)
	}

	p.eventually("everything to be removed", func() bool {
		look()

		return len(p.requests()) == 0
	})

	// Token and key are refused at last.
	p.Rack.RevokeToken(env["OXIDE_TOKEN"])
	p.set("late", "oxide", 1)
	p.eventually("the token to be refused", func() bool {
		look()

		return strings.Contains(seen.String(), "refuses the daemon's token")
	})

	if err := p.Omni.RevokeKeys(t.Context(), "infra-provider:oxide"); err != nil {
		t.Fatal(err)
	}

	p.eventually("the key to be refused", func() bool { return strings.Contains(d.get("/readyz"), "refuses the service account key") })

	for _, path := range []string{"/metrics", "/readyz", "/debug/recent", "/debug/goroutines"} {
		seen.WriteString(d.get(path))
	}

	for _, args := range [][]string{{"doctor", "--output", "json"}, {"status"}, {"diagnose"}} {
		_, out, errs := invoke(t, env, args...)
		seen.WriteString(errs)

		if args[0] != "diagnose" {
			seen.WriteString(out)

			continue
		}

		for _, text := range files(t, out) {
			seen.WriteString(text)
		}
	}

	// A stack of all goroutines, as a fatal error of Go's runtime prints it.
	if err := d.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}

	<-d.done

	if !strings.Contains(d.log(), "SIGQUIT") {
		t.Error("no stack was printed")
	}

	seen.WriteString(d.log())

	all := seen.String()

	for _, s := range secrets {
		for _, form := range s.forms() {
			if at := strings.Index(all, form); at >= 0 {
				t.Errorf("the %s is seen after %q", s.name, all[max(at-200, 0):at])

				break
			}
		}
	}

	t.Logf("searched %d bytes for %d secrets", len(all), len(secrets))
}
