package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/doctor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/edge"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// invoke runs the binary to its end.
func invoke(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	var out, errs bytes.Buffer

	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	cmd.Stdout, cmd.Stderr = &out, &errs

	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}

	err := cmd.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode(), out.String(), errs.String()
	}

	if err != nil {
		t.Fatal(err)
	}

	return 0, out.String(), errs.String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")

	return line
}

// changes are the calls to the rack, to Omni and to the image factory that change
// something.
func (p *place) changes() []string {
	var out []string

	for _, c := range p.Rack.Calls() {
		if c.Method != http.MethodGet && c.Method != http.MethodHead {
			out = append(out, c.Method+" "+c.Path)
		}
	}

	for _, c := range p.Omni.Calls() {
		switch c.Verb {
		case "Create", "Update", "Destroy", "Teardown", "TeardownAndDestroy":
			out = append(out, c.Verb+" "+c.Type+" "+c.ID)
		}

		if strings.Contains(c.Verb, "Schematic") {
			out = append(out, c.Verb)
		}
	}

	for _, c := range p.Factory.Calls() {
		if c.Method != http.MethodGet && c.Method != http.MethodHead {
			out = append(out, "factory "+c.Method+" "+c.Path)
		}
	}

	return out
}

// broken is a set-up in which something is wrong.
type broken struct {
	name string
	// site is what it is made of, break what is done to it and to the environment.
	site  site.Config
	spoil func(t *testing.T, p *place, env map[string]string)
	// says stands in the first line, with the exit code.
	says string
	code int
	// class is given with --class, empty for none.
	class string
}

func put(pairs ...string) func(*testing.T, *place, map[string]string) {
	return func(_ *testing.T, _ *place, env map[string]string) {
		for i := 0; i < len(pairs); i += 2 {
			env[pairs[i]] = pairs[i+1]
		}
	}
}

// behindTLS has the rack answer by TLS with a certificate until an end, for hosts.
func behindTLS(end time.Duration, trusted bool, hosts ...string) func(*testing.T, *place, map[string]string) {
	return func(t *testing.T, p *place, env map[string]string) {
		t.Helper()

		ca, err := edge.NewCA("test")
		if err != nil {
			t.Fatal(err)
		}

		cert, err := ca.Issue(time.Now().Add(end), hosts...)
		if err != nil {
			t.Fatal(err)
		}

		door, err := edge.OpenTLS(t.Context(), strings.TrimPrefix(p.RackURL, "http://"), cert)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = door.Close() })

		env["OXIDE_HOST"] = "https://" + door.Address()

		if trusted {
			path := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(path, ca.PEM(), 0o600); err != nil {
				t.Fatal(err)
			}

			env["OXIDE_CA_FILE"] = path
		}
	}
}

// inFront puts a server before the rack, which changes its answers.
func inFront(change func(*http.Response)) func(*testing.T, *place, map[string]string) {
	return func(t *testing.T, p *place, env map[string]string) {
		t.Helper()

		target, err := url.Parse(p.RackURL)
		if err != nil {
			t.Fatal(err)
		}

		proxy := &httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
			ModifyResponse: func(r *http.Response) error { change(r); return nil },
		}

		s := httptest.NewServer(proxy)
		t.Cleanup(s.Close)

		env["OXIDE_HOST"] = s.URL
	}
}

func fault(f rack.Fault) func(*testing.T, *place, map[string]string) {
	return func(t *testing.T, p *place, _ map[string]string) {
		t.Helper()

		if _, err := p.Rack.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
}

// aFactory has a factory that knows all versions, and answers for schematics as it
// is told.
func aFactory(schematics int) func(*testing.T, *place, map[string]string) {
	return func(t *testing.T, _ *place, env map[string]string) {
		t.Helper()

		mux := http.NewServeMux()
		mux.HandleFunc("GET /versions", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`["v1.13.5"]`)) })
		mux.HandleFunc("GET /schematics/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(schematics) })

		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)

		env["IMAGE_FACTORY_URL"] = s.URL
	}
}

// once runs the daemon once, so that it is known in Omni.
func once(t *testing.T, p *place, env map[string]string) {
	t.Helper()

	d := start(t, env)

	p.waitRegistered("oxide")

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func setUps() []broken {
	withToken := func(t rack.Token) site.Config {
		t.Value, t.User = rack.DefaultToken, "daemon"

		// The operator of the site needs one with all rights.
		return site.Config{Rack: rack.Config{Tokens: []rack.Token{t}}}
	}

	return []broken{
		{name: "no Omni", spoil: put("OMNI_ENDPOINT", ""), says: "--omni-endpoint / OMNI_ENDPOINT: is not set", code: 2},
		{name: "no scheme", spoil: put("OMNI_ENDPOINT", "omni.example.com"), says: "OMNI_ENDPOINT", code: 2},
		{name: "a key that was cut", spoil: func(_ *testing.T, _ *place, env map[string]string) {
			env["OMNI_SERVICE_ACCOUNT_KEY"] = env["OMNI_SERVICE_ACCOUNT_KEY"][:41]
		}, says: "is base64 that ends too early, after 41 characters", code: 2},
		{name: "a key with a quote in it", spoil: func(_ *testing.T, _ *place, env map[string]string) {
			env["OMNI_SERVICE_ACCOUNT_KEY"] = `"` + env["OMNI_SERVICE_ACCOUNT_KEY"] + `"`
		}, says: "is no base64 at character 1 of", code: 2},
		{name: "another provider's key", spoil: func(_ *testing.T, p *place, env map[string]string) {
			env["OMNI_SERVICE_ACCOUNT_KEY"] = p.env("another")["OMNI_SERVICE_ACCOUNT_KEY"]
		}, says: `is the key of the provider "another", but the provider ID is "oxide"`, code: 2},
		{name: "an administrator's key", spoil: func(t *testing.T, p *place, env map[string]string) {
			t.Helper()

			key, err := p.Omni.MintAdminKey(t.Context(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}

			env["OMNI_SERVICE_ACCOUNT_KEY"] = key
		}, says: "which is no infrastructure provider's", code: 2},
		{name: "an expired key", spoil: func(t *testing.T, p *place, env map[string]string) {
			t.Helper()

			key, err := p.Omni.MintProviderKey(t.Context(), "oxide", time.Second)
			if err != nil {
				t.Fatal(err)
			}

			env["OMNI_SERVICE_ACCOUNT_KEY"] = key
			p.eventually("the key to expire", func() bool {
				code, _, _ := invoke(t, env, "doctor")

				return code == 2
			})
		}, says: "has expired on", code: 2},
		{name: "no token", spoil: put("OXIDE_TOKEN", ""), says: "host and token go together", code: 2},
		{name: "a token's file that is not there", spoil: put("OXIDE_TOKEN", "", "OXIDE_TOKEN_FILE", "/none/oxide.token"), says: "/none/oxide.token can not be found", code: 2},
		{name: "a profile too", spoil: put("OXIDE_PROFILE", "default"), says: "set either the profile, or host and token", code: 2},
		{name: "a proxy that is none", spoil: put("HTTPS_PROXY", "http://:3128"), says: "the proxy's address in HTTPS_PROXY can not be read", code: 1},
		{name: "a clock that is wrong", spoil: inFront(func(r *http.Response) {
			r.Header.Set("Date", time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat))
		}), says: "behind that of the rack, and Omni allows 5 minutes", code: 1},
		{name: "an Omni that is not there", spoil: func(t *testing.T, _ *place, env map[string]string) {
			t.Helper()

			env["OMNI_ENDPOINT"] = "http://" + freeAddress(t)
		}, says: "refuses connections", code: 1},
		{name: "an Omni that is no Omni", spoil: func(_ *testing.T, p *place, env map[string]string) {
			env["OMNI_ENDPOINT"] = p.RackURL
		}, says: "Omni at http://127.0.0.1", code: 1},
		{name: "a revoked key", spoil: func(t *testing.T, p *place, _ map[string]string) {
			t.Helper()

			if err := p.Omni.RevokeKeys(t.Context(), "infra-provider:oxide"); err != nil {
				t.Fatal(err)
			}
		}, says: "refuses the service account key", code: 1},
		{name: "an old Omni", site: site.Config{Omni: omni.Config{Version: "v1.7.2"}}, says: "Omni is of version v1.7.2", code: 1},
		{name: "a rack that is not there", spoil: func(t *testing.T, _ *place, env map[string]string) {
			t.Helper()

			env["OXIDE_HOST"] = "http://" + freeAddress(t)
		}, says: "refuses connections", code: 1},
		{name: "a rack without TLS", spoil: func(_ *testing.T, p *place, env map[string]string) {
			env["OXIDE_HOST"] = "https://" + strings.TrimPrefix(p.RackURL, "http://")
		}, says: "does not speak TLS there", code: 1},
		{name: "an unknown CA", spoil: behindTLS(time.Hour, false, "127.0.0.1"), says: "signed by an unknown authority: give its CA with OXIDE_CA_FILE", code: 1},
		{name: "an expired certificate", spoil: behindTLS(-time.Hour, true, "127.0.0.1"), says: "its certificate has expired", code: 1},
		{name: "a certificate of another name", spoil: behindTLS(time.Hour, true, "rack.example.com"), says: "its certificate is for", code: 1},
		{name: "something else than a rack", spoil: func(_ *testing.T, p *place, env map[string]string) {
			env["OXIDE_HOST"] = p.Factory.URL()
		}, says: "is no Oxide API", code: 1},
		{name: "an old rack", spoil: fault(rack.Fault{
			Action: rack.ActionError, Operation: "ping", Status: 400, Message: "server does not support this API version: 2026060800",
		}), says: "the rack does not speak API version 2026060800", code: 1},
		{name: "a rack in maintenance", spoil: fault(rack.Fault{Action: rack.ActionError, Operation: "ping", Status: 503, Message: "maintenance"}), says: "the rack's API does not answer", code: 1},
		{name: "a wrong token", spoil: put("OXIDE_TOKEN", "oxide-token-wrong"), says: "the rack refuses the token", code: 1},
		{name: "no role", site: withToken(rack.Token{SiloRole: rack.SiloNone}), says: "the token may not read", code: 1},
		{name: "a role that only reads", site: withToken(rack.Token{SiloRole: rack.RoleViewer}), says: "the token may read, but make nothing in any project", code: 1},
		{
			name: "a role too small for the silo's images", site: withToken(rack.Token{SiloRole: rack.RoleLimitedCollaborator}),
			spoil: put("IMAGE_SCOPE", "silo"), says: "the token may not keep images in the silo", code: 1,
		},
		{name: "a name that does not resolve", spoil: put("OXIDE_HOST", "https://rack.invalid"), says: "DNS does not", code: 1},
		{name: "a class with a mistake", class: "project: talos\ncpus: 300\n", says: "cpus: 300 is over the limit of 254", code: 1},
		{name: "no such project", class: "project: none\n", spoil: once, says: `project: "none" is not in the silo`, code: 1},
		{
			name: "no such VPC", class: "project: talos\nnetwork_interfaces:\n  - vpc_name: none\n    subnet_name: default\n", spoil: once,
			says: `project "talos" has no VPC "none"`, code: 1,
		},
		{
			name: "no such subnet", class: "project: talos\nnetwork_interfaces:\n  - vpc_name: default\n    subnet_name: none\n", spoil: once,
			says: `VPC "default" has no subnet "none"`, code: 1,
		},
		{
			name: "no default pool", site: site.Config{Rack: rack.Config{Pools: []rack.Pool{}}}, class: "project: talos\n", spoil: once,
			says: "the silo has no default IPv4 address pool", code: 1,
		},
		{
			name: "a full quota", site: site.Config{Rack: rack.Config{Quota: rack.Quota{CPUs: 2, Memory: 1 << 40, Storage: 1 << 40}}},
			class: "project: talos\ncpus: 4\n", spoil: once, says: "the silo's quota of cpus has no room for one machine: 0 of 2 are used, it needs 4 more", code: 1,
		},
		{name: "a factory that is not there", spoil: func(t *testing.T, _ *place, env map[string]string) {
			t.Helper()

			env["IMAGE_FACTORY_URL"] = "http://" + freeAddress(t)
		}, says: "the image factory at 127.0.0.1", code: 1},
		{name: "a factory that wants a token", site: site.Config{Factory: factory.Config{Token: "secret"}}, says: "refuses the credentials (HTTP 401)", code: 1},
		{name: "a factory of old versions", site: site.Config{Factory: factory.Config{Versions: []string{"1.11.5"}}}, says: "has no Talos 1.12.3 or later", code: 1},
		{name: "a factory that is not Omni's", spoil: aFactory(http.StatusNotFound), says: "and Omni registers schematics at", code: 1},
		{name: "a factory without schematics", spoil: aFactory(http.StatusInternalServerError), says: "does not serve schematics (HTTP 500)", code: 1},
		{name: "something else than a factory", spoil: func(t *testing.T, _ *place, env map[string]string) {
			t.Helper()

			other := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(other.Close)

			env["IMAGE_FACTORY_URL"] = other.URL
		}, says: "is no image factory", code: 1},
	}
}

// Invariant: the first line names the cause, and nothing is changed anywhere.
func TestDoctorNamesTheCauseFirst(t *testing.T) {
	t.Parallel()

	for _, b := range setUps() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()

			p := newPlace(t, b.site)
			env := p.env("oxide")

			if b.spoil != nil {
				b.spoil(t, p, env)
			}

			before := len(p.changes())
			args := []string{"doctor"}

			if b.class != "" {
				args = append(args, "--class", classFile(t, b.class))
			}

			code, out, errs := invoke(t, env, args...)

			if first := firstLine(out); !strings.Contains(first, b.says) || code != b.code {
				t.Errorf("exit code %d, want %d; first line %q, want %q\n%s%s", code, b.code, first, b.says, out, errs)
			}

			if strings.Contains(out+errs, env["OMNI_SERVICE_ACCOUNT_KEY"]) && env["OMNI_SERVICE_ACCOUNT_KEY"] != "" {
				t.Error("the key is shown")
			}

			if n := p.changes()[before:]; len(n) > 0 {
				t.Errorf("it changed %v", n)
			}
		})
	}
}

// A role on one project is enough.
func TestDoctorTakesARoleOnOneProject(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{Rack: rack.Config{Tokens: []rack.Token{{
		Value: rack.DefaultToken, User: "daemon", SiloRole: rack.RoleViewer,
		ProjectRoles: map[string]rack.Role{site.Project: rack.RoleLimitedCollaborator},
	}}}})

	code, out, errs := invoke(t, p.env("oxide"), "doctor")
	if code != 0 || !strings.Contains(out, "its user is limited_collaborator") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// Invariant: where nothing is wrong it says so, beside a daemon and before one has
// run, and changes nothing.
func TestDoctorFindsNothingWhereAllIsWell(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")

	examine := func(want string) {
		t.Helper()

		before := len(p.changes())

		code, out, errs := invoke(t, env, "doctor")
		if code != 0 || firstLine(out) != "Nothing is wrong." || !strings.Contains(out, want) {
			t.Errorf("exit code %d\n%s%s", code, out, errs)
		}

		if n := p.changes()[before:]; want == "has never run" && len(n) > 0 {
			t.Errorf("it changed %v", n)
		}
	}

	examine("has never run")

	d := start(t, env)
	p.eventually("the daemon to be ready", func() bool { ok, _ := d.ready(); return ok })
	p.eventually("its health to be in Omni", func() bool {
		_, out, _ := invoke(t, env, "doctor")

		return strings.Contains(out, "says that it is well")
	})
	examine("says that it is well")

	code, out, errs := invoke(t, env, "doctor", "--output", "json")

	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || !r.Well || len(r.Findings) < 12 {
		t.Errorf("exit code %d, %v\n%s%s", code, err, out, errs)
	}

	if code, _, errs = invoke(t, env, "doctor", "--output", "xml"); code != 2 || !strings.Contains(errs, "--output") {
		t.Errorf("a wrong form: exit code %d, %s", code, errs)
	}
}
