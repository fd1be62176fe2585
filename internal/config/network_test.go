package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/edge"
)

func caPEM(t *testing.T) string {
	t.Helper()

	ca, err := edge.NewCA("a CA")
	if err != nil {
		t.Fatal(err)
	}

	return string(ca.PEM())
}

func TestCAsAreReadForEachEndpointAndForAll(t *testing.T) {
	t.Parallel()

	env := environment(t)
	all, omni := write(t, caPEM(t)), write(t, "# ours\n"+caPEM(t)+"\n"+caPEM(t))
	env["CA_FILE"], env["OMNI_CA_FILE"], env["OXIDE_INSECURE"] = all, omni, "on"

	c, err := load(t, nil, env)
	if err != nil {
		t.Fatal(err)
	}

	for name, got := range map[string]struct{ trusted, want int }{
		"omni":    {len(c.Trust(c.Omni.Certificates).PEM), 2},
		"rack":    {len(c.Trust(c.Oxide.Certificates).PEM), 1},
		"factory": {len(c.Trust(c.Factory.Certificates).PEM), 1},
	} {
		if got.trusted != got.want {
			t.Errorf("%s trusts %d bundles, not %d", name, got.trusted, got.want)
		}
	}

	if !c.Trust(c.Oxide.Certificates).Insecure || c.Trust(c.Omni.Certificates).Insecure {
		t.Error("the wrong endpoint is insecure")
	}

	if lines := c.Insecure(); len(lines) != 1 || !strings.Contains(lines[0], "OXIDE_INSECURE is on") {
		t.Errorf("warned of %q", lines)
	}

	if strings.Contains(c.String(), "BEGIN") || !strings.Contains(c.String(), `ca-file="`+all+`"`) {
		t.Errorf("shown as %s", c)
	}
}

func TestAFileThatIsNoCAIsAMistake(t *testing.T) {
	t.Parallel()

	good := caPEM(t)

	for content, want := range map[string]string{
		"":                                      "has no PEM certificate in it",
		"hello":                                 "has no PEM certificate in it",
		good[:len(good)/2]:                      "that is no PEM",
		good + good[:len(good)/2]:               "after certificate 1 that is no PEM",
		strings.ReplaceAll(good, "MII", "MIJ"):  "certificate 1 can not be read",
		strings.ReplaceAll(good, "CERT", "KEY"): "only certificates belong there",
	} {
		env := environment(t)
		env["IMAGE_FACTORY_CA_FILE"] = write(t, content)

		if _, err := load(t, nil, env); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "IMAGE_FACTORY_CA_FILE") {
			t.Errorf("%.40q: %v, want %q", content, err, want)
		}
	}

	env := environment(t)
	env["CA_FILE"] = filepath.Join(t.TempDir(), "missing.pem")

	if _, err := load(t, nil, env); err == nil || !strings.Contains(err.Error(), "missing.pem\" can not be found") {
		t.Errorf("%v", err)
	}
}

func TestThereIsOneWayToBeKnownAtTheFactory(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		env    map[string]string
		header string
		want   string
	}{
		"none":          {nil, "", ""},
		"basic":         {map[string]string{"IMAGE_FACTORY_USERNAME": "ann", "IMAGE_FACTORY_PASSWORD": "secret"}, "Basic YW5uOnNlY3JldA==", ""},
		"bearer":        {map[string]string{"IMAGE_FACTORY_TOKEN": "secret"}, "Bearer secret", ""},
		"no password":   {map[string]string{"IMAGE_FACTORY_USERNAME": "ann"}, "", "user and password go together"},
		"no user":       {map[string]string{"IMAGE_FACTORY_PASSWORD": "secret"}, "", "user and password go together"},
		"both":          {map[string]string{"IMAGE_FACTORY_USERNAME": "ann", "IMAGE_FACTORY_PASSWORD": "s", "IMAGE_FACTORY_TOKEN": "t"}, "", "either the token, or user and password"},
		"in clear":      {map[string]string{"IMAGE_FACTORY_TOKEN": "secret", "IMAGE_FACTORY_URL": "http://factory.example.com"}, "", "could be read on their way"},
		"clear on hand": {map[string]string{"IMAGE_FACTORY_TOKEN": "secret", "IMAGE_FACTORY_URL": "http://127.0.0.1:8080"}, "Bearer secret", ""},
		"allowed": {
			map[string]string{"IMAGE_FACTORY_TOKEN": "secret", "IMAGE_FACTORY_URL": "http://factory.example.com", "IMAGE_FACTORY_INSECURE": "on"},
			"Bearer secret", "",
		},
	} {
		env := environment(t)
		for k, v := range c.env {
			env[k] = v
		}

		got, err := load(t, nil, env)

		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case c.want == "" && got.Factory.Header().Get("Authorization") != c.header:
			t.Errorf("%s: asked with %q", name, got.Factory.Header())
		}
	}
}

func TestATokenInClearIsWarnedOf(t *testing.T) {
	t.Parallel()

	for host, warned := range map[string]bool{"http://rack.example.com": true, "https://rack.example.com": false, "http://127.0.0.1:1": false} {
		env := environment(t)
		env["OXIDE_HOST"] = host

		c, err := load(t, nil, env)
		if err != nil {
			t.Fatal(err)
		}

		if (len(c.Insecure()) > 0) != warned {
			t.Errorf("%s: warned of %q", host, c.Insecure())
		}
	}
}
