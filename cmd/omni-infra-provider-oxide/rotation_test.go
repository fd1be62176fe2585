package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// mount is a directory of secrets as Kubernetes mounts one: files that are links
// into a directory behind a link, which is swapped as a whole.
type mount struct {
	t       *testing.T
	dir     string
	version int
	content map[string]string
}

func newMount(t *testing.T, content map[string]string) *mount {
	t.Helper()

	m := &mount{t: t, dir: t.TempDir(), content: content}
	m.put("", "")

	for name := range content {
		m.ok(os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)))
	}

	return m
}

func (m *mount) ok(err error) {
	m.t.Helper()

	if err != nil {
		m.t.Fatal(err)
	}
}

// put changes one secret.
func (m *mount) put(name, content string) {
	m.t.Helper()

	if name != "" {
		m.content[name] = content
	}

	m.version++
	data := filepath.Join(m.dir, "..version-"+strings.Repeat("x", m.version))
	m.ok(os.Mkdir(data, 0o700))

	for n, c := range m.content {
		m.ok(os.WriteFile(filepath.Join(data, n), []byte(c), 0o600))
	}

	m.ok(os.Symlink(filepath.Base(data), filepath.Join(m.dir, "..next")))
	m.ok(os.Rename(filepath.Join(m.dir, "..next"), filepath.Join(m.dir, "..data")))
}

func (m *mount) path(name string) string { return filepath.Join(m.dir, name) }

// byFiles has the daemon's credentials come from a mount.
func (p *place) byFiles(env map[string]string) *mount {
	p.t.Helper()

	m := newMount(p.t, map[string]string{"omni.key": env["OMNI_SERVICE_ACCOUNT_KEY"], "oxide.token": env["OXIDE_TOKEN"] + "\n"})

	delete(env, "OMNI_SERVICE_ACCOUNT_KEY")
	delete(env, "OXIDE_TOKEN")

	env["OMNI_SERVICE_ACCOUNT_KEY_FILE"], env["OXIDE_TOKEN_FILE"] = m.path("omni.key"), m.path("oxide.token")

	return m
}

func (p *place) says(d *daemon, ready bool, want string) {
	p.t.Helper()
	p.eventually("the probe to say "+want, func() bool {
		is, why := d.ready()

		return is == ready && strings.Contains(why, want)
	})
}

// Rule: the key and the token are rotated under the real binary by swapping the
// secret's links; wrong ones are told and change nothing; one that expired is told
// as refused, and nothing is taken for gone meanwhile.
func TestCredentialsAreRotatedWithoutARestart(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	m := p.byFiles(env)
	d := start(t, env)

	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)

	other, err := p.ProviderKey(t.Context(), "another")
	m.ok(err)
	m.put("omni.key", other)
	p.says(d, true, `is the key of the provider "another"`)

	m.put("omni.key", "")
	p.says(d, true, "is empty")

	if err := p.Omni.RevokeKeys(t.Context(), "infra-provider:oxide"); err != nil {
		t.Fatal(err)
	}

	p.says(d, false, "refuses the service account key")

	fresh, err := p.ProviderKey(t.Context(), "oxide")
	m.ok(err)
	m.put("omni.key", fresh)
	p.says(d, true, "ready")
	p.set("workers", "oxide", 2)
	p.waitJoined("workers", 2)

	p.Rack.SetToken(rack.Token{Value: p.RackToken, Expires: time.Now().Add(-time.Minute)})
	p.says(d, false, "refuses the token")
	p.set("workers", "oxide", 0)

	m.put("oxide.token", "oxide-token-nobody's")
	p.says(d, false, "new token for the rack")

	if n := len(p.requests()); n != 2 {
		t.Errorf("%d requests are left while the rack says 401", n)
	}

	p.Rack.SetToken(rack.Token{Value: "oxide-token-fresh", User: "provider"})
	m.put("oxide.token", "oxide-token-fresh")
	p.says(d, true, "ready")

	// The operator has its own token.
	p.eventually("the requests to end", func() bool { return len(p.requests()) == 0 })

	if n := strings.Count(d.log(), `"linked to Omni"`); n != 1 {
		t.Errorf("work was begun %d times", n)
	}

	for _, secret := range []string{fresh, "oxide-token-fresh", p.RackToken} {
		if strings.Contains(d.log(), secret) {
			t.Error("a secret is in the log")
		}
	}

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Rule: a profile of the Oxide CLI does as well as host and token, is followed like
// them, and what the CLI notes of the token's end is warned of.
func TestAProfileOfTheOxideCLIIsFollowed(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	profile := func(token string, expires time.Time) string {
		return "[profile.lab]\nhost = \"" + p.RackURL + "\"\ntoken = \"" + token + "\"\nuser = \"u\"\ntime_expires = \"" +
			expires.UTC().Format(time.RFC3339) + "\"\n"
	}
	m := newMount(t, map[string]string{"credentials.toml": profile(p.RackToken, time.Now().Add(6*24*time.Hour))})

	delete(env, "OXIDE_HOST")
	delete(env, "OXIDE_TOKEN")

	env["OXIDE_PROFILE"], env["OXIDE_CONFIG_DIR"] = "lab", m.dir

	d := start(t, env)
	p.waitRegistered("oxide")
	p.says(d, true, "the token for the rack expires in 5 days")

	p.Rack.SetToken(rack.Token{Value: "oxide-token-fresh", User: "provider"})
	m.put("credentials.toml", profile("oxide-token-fresh", time.Now().Add(300*24*time.Hour)))
	p.eventually("the new token to be taken", func() bool { return strings.Contains(d.log(), "took a new token for the rack") })
	p.eventually("the warning to end", func() bool {
		_, why := d.ready()

		return !strings.Contains(why, "token for the rack expires in")
	})
	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)
}
