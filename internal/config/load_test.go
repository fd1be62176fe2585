package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
)

const token = "oxide-token-0123456789abcdef0123456789abcdef01234567"

// load loads with the flags and the variables.
func load(t *testing.T, args []string, env map[string]string) (Config, error) {
	t.Helper()

	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	loader := Register(flags)

	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}

	return loader.Load(func(name string) (string, bool) {
		v, ok := env[name]

		return v, ok
	})
}

// environment is the least that works, changed by pairs of name and value; an
// empty value unsets.
func environment(t *testing.T, pairs ...string) map[string]string {
	t.Helper()

	env := map[string]string{
		"OMNI_ENDPOINT":            "https://omni.example.com",
		"OMNI_SERVICE_ACCOUNT_KEY": validKey(t),
		"OXIDE_HOST":               "https://silo.sys.example.com",
		"OXIDE_TOKEN":              token,
	}

	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}

	return env
}

func write(t *testing.T, content string) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func TestDefaults(t *testing.T) {
	t.Parallel()

	c, err := load(t, nil, environment(t))
	if err != nil {
		t.Fatal(err)
	}

	if c.Omni.KeyExpiry.IsZero() {
		t.Error("no expiry of the key")
	}

	want := Config{
		Omni:        Omni{Endpoint: "https://omni.example.com", Key: Secret(validKey(t)), KeyExpiry: c.Omni.KeyExpiry},
		Provider:    Provider{ID: "oxide", Name: "Oxide", Description: "Talos machines on an Oxide rack"},
		Oxide:       Oxide{Host: "https://silo.sys.example.com", Token: token},
		Lease:       Lease{Times: lease.Times{Duration: 20 * time.Second, Renew: 5 * time.Second, Stop: 12 * time.Second}},
		Log:         Log{Level: zapcore.InfoLevel, Format: "json"},
		Concurrency: 10, MaxCreates: 4, RackCalls: 16, RackChanges: 8, SettleTime: 2 * time.Minute, ScratchGrace: 2 * time.Minute, JoinTime: 15 * time.Minute, ShutdownGrace: 25 * time.Second, Janitor: JanitorOn, JanitorGrace: 10 * time.Minute,
		Images: Images{Scope: ScopeAuto, Uploads: 4, Keep: 336 * time.Hour, Newest: 2},
	}
	if c != want {
		t.Errorf("\n got %v\nwant %v", c, want)
	}
}

func TestAFlagWinsOverAVariableOverTheDefault(t *testing.T) {
	t.Parallel()

	env := environment(t, "LOG_LEVEL", "debug", "LOG_FORMAT", "console", "PROVISIONER_CONCURRENCY", " 20 ", "PROVIDER_NAME", "",
		"IMAGE_FACTORY_URL", "https://factory.example.com/prefix/", "HEALTH_ADDRESS", ":8080")

	c, err := load(t, []string{"--log-level=ERROR", "--settle-time", "10s", "--max-creates=2", "--provider-description="}, env)
	if err != nil {
		t.Fatal(err)
	}

	if c.Log.Level != zapcore.ErrorLevel || c.Log.Format != "console" || c.Concurrency != 20 || c.Provider.Name != "Oxide" ||
		c.SettleTime != 10*time.Second || c.MaxCreates != 2 || c.Provider.Description != "" ||
		c.Factory.URL != "https://factory.example.com/prefix" || c.HealthAddress != ":8080" {
		t.Errorf("%v", c)
	}
}

func TestSecretsComeFromVariablesAndFiles(t *testing.T) {
	t.Parallel()

	file := write(t, "\n"+token+"\n")

	for name, test := range map[string]struct {
		args  []string
		pairs []string
		want  string
	}{
		"variable":           {nil, nil, token},
		"file by variable":   {nil, []string{"OXIDE_TOKEN", "", "OXIDE_TOKEN_FILE", file}, token},
		"file by flag":       {[]string{"--oxide-token-file", file}, []string{"OXIDE_TOKEN", ""}, token},
		"flag over variable": {[]string{"--oxide-token-file", file}, []string{"OXIDE_TOKEN", "other"}, token},
		"flag over file":     {[]string{"--oxide-token-file", file}, []string{"OXIDE_TOKEN", "", "OXIDE_TOKEN_FILE", "/none"}, token},
	} {
		c, err := load(t, test.args, environment(t, test.pairs...))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.Oxide.Token.Reveal() != test.want {
			t.Errorf("%s: another token", name)
		}
	}
}

func TestSecretsHaveNoPlainFlag(t *testing.T) {
	t.Parallel()

	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(flags)

	for _, o := range options() {
		if o.secret != (flags.Lookup(o.flag) == nil) || o.secret != (flags.Lookup(o.fileFlag()) != nil) {
			t.Errorf("flags of %s", o.flag)
		}
	}
}

// Invariant: all mistakes are told at once, each with its flag and its
// variable, and none with a secret.
func TestMistakes(t *testing.T) {
	t.Parallel()

	const (
		omniEndpoint = "--omni-endpoint / OMNI_ENDPOINT: "
		omniKey      = "--omni-service-account-key-file / OMNI_SERVICE_ACCOUNT_KEY / OMNI_SERVICE_ACCOUNT_KEY_FILE: "
		oxideHost    = "--oxide-host / OXIDE_HOST: "
		oxideToken   = "--oxide-token-file / OXIDE_TOKEN / OXIDE_TOKEN_FILE: "
		oxideProfile = "--oxide-profile / OXIDE_PROFILE: "
		notBeside    = "is set beside --oxide-host / OXIDE_HOST and --oxide-token-file / OXIDE_TOKEN / OXIDE_TOKEN_FILE: " +
			"set either the profile, or host and token"
		noLabel = " is no DNS label (1 to 63 of a-z, 0-9 and -, neither first nor last a -)"
	)

	empty := write(t, " \n")
	large := write(t, strings.Repeat("a", maxSecret+1))
	noProfile := filepath.Dir(write(t, ""))

	for _, test := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"OMNI_ENDPOINT", ""}, omniEndpoint + "is not set"},
		{[]string{"OMNI_ENDPOINT", "omni.example.com"}, omniEndpoint + "must begin with https://, http:// or grpc://"},
		{[]string{"OMNI_ENDPOINT", "omni.example.com:443"}, omniEndpoint + "must begin with https://, http:// or grpc://"},
		{[]string{"OMNI_ENDPOINT", "ftp://omni.example.com"}, omniEndpoint + "must begin with https://, http:// or grpc://"},
		{[]string{"OMNI_ENDPOINT", "https:omni.example.com"}, omniEndpoint + "must begin with https://, http:// or grpc://"},
		{[]string{"OMNI_ENDPOINT", "https://"}, omniEndpoint + "has no host"},
		{[]string{"OMNI_ENDPOINT", "https://:443"}, omniEndpoint + "has no host"},
		{[]string{"OMNI_ENDPOINT", "https://a b"}, omniEndpoint + "is no URL"},
		{[]string{"OMNI_ENDPOINT", "https://a:b"}, omniEndpoint + "is no URL"},
		{[]string{"OMNI_ENDPOINT", "https://a:0"}, omniEndpoint + "has no port of 1 to 65535"},
		{[]string{"OMNI_ENDPOINT", "https://a:70000"}, omniEndpoint + "has no port of 1 to 65535"},
		{[]string{"OMNI_ENDPOINT", "https://u:p@a"}, omniEndpoint + "must not have a user or a password in it"},
		{[]string{"OMNI_ENDPOINT", "https://a/b"}, omniEndpoint + "must not have a path"},
		{[]string{"OMNI_ENDPOINT", "https://a?b=c"}, omniEndpoint + "must end after the host or path, without ? and #"},
		{[]string{"OMNI_ENDPOINT", "https://[::1]"}, omniEndpoint + "needs a port after an IPv6 address"},

		{[]string{"OMNI_SERVICE_ACCOUNT_KEY", ""}, omniKey + "is not set"},
		{
			[]string{"OMNI_SERVICE_ACCOUNT_KEY_FILE", "/x"},
			omniKey + "both OMNI_SERVICE_ACCOUNT_KEY and OMNI_SERVICE_ACCOUNT_KEY_FILE are set, only one may be",
		},
		{
			[]string{"OMNI_SERVICE_ACCOUNT_KEY", "", "OMNI_SERVICE_ACCOUNT_KEY_FILE", "/does/not/exist"},
			omniKey + "reading the secret: /does/not/exist can not be found; is this the secret and not the path of its file?",
		},

		{[]string{"PROVIDER_ID", "Oxide"}, `--provider-id / PROVIDER_ID: "Oxide"` + noLabel},
		{[]string{"PROVIDER_ID", "a.b"}, `--provider-id / PROVIDER_ID: "a.b"` + noLabel},
		{[]string{"PROVIDER_ID", "-a"}, `--provider-id / PROVIDER_ID: "-a"` + noLabel},
		{[]string{"PROVIDER_ID", strings.Repeat("a", 64)}, `--provider-id / PROVIDER_ID: "` + strings.Repeat("a", 64) + `"` + noLabel},
		{[]string{"PROVIDER_NAME", "a\nb"}, "--provider-name / PROVIDER_NAME: must be one line of at most 256 bytes"},
		{
			[]string{"PROVIDER_ID", "other"},
			omniKey + `is the key of the provider "oxide", but the provider ID is "other" (--provider-id / PROVIDER_ID)`,
		},

		{[]string{"OXIDE_HOST", ""}, oxideHost + "is not set, host and token go together"},
		{[]string{"OXIDE_TOKEN", ""}, oxideToken + "is not set, host and token go together"},
		{
			[]string{"OXIDE_HOST", "", "OXIDE_TOKEN", ""},
			strings.TrimSuffix(oxideHost, ": ") + " and " + strings.TrimSuffix(oxideToken, ": ") +
				": are not set, and neither is --oxide-profile / OXIDE_PROFILE: set host and token, or a profile",
		},
		{[]string{"OXIDE_PROFILE", "lab"}, oxideProfile + notBeside},
		{[]string{"OXIDE_PROFILE", "lab", "OXIDE_HOST", ""}, oxideProfile + strings.Replace(notBeside, "--oxide-host / OXIDE_HOST and ", "", 1)},
		{[]string{"OXIDE_CONFIG_DIR", "/x"}, "--oxide-config-dir / OXIDE_CONFIG_DIR: is set without a profile (--oxide-profile / OXIDE_PROFILE)"},
		{
			[]string{"OXIDE_PROFILE", "lab", "OXIDE_HOST", "", "OXIDE_TOKEN", "", "OXIDE_CONFIG_DIR", noProfile},
			oxideProfile + "looking for the Oxide CLI's credentials: stat " + noProfile + "/credentials.toml: no such file or directory",
		},
		{
			[]string{"OXIDE_PROFILE", "a.b", "OXIDE_HOST", "", "OXIDE_TOKEN", ""},
			oxideProfile + `"a.b" is no name of a profile that the Oxide client finds: it must have no dot, space, quote or bracket`,
		},
		{[]string{"OXIDE_HOST", "ftp://silo"}, oxideHost + "must begin with https:// or http://"},
		{[]string{"OXIDE_HOST", "silo/path"}, oxideHost + "must not have a path"},
		{[]string{"OXIDE_HOST", token}, oxideHost + "is a token, not a host"},
		{[]string{"OXIDE_TOKEN", "", "OXIDE_TOKEN_FILE", empty}, oxideToken + "reading the secret: " + empty + " is empty"},
		{
			[]string{"OXIDE_TOKEN", "", "OXIDE_TOKEN_FILE", large},
			oxideToken + "reading the secret: " + large + " has 65537 bytes, more than any secret",
		},

		{[]string{"IMAGE_FACTORY_URL", "factory.talos.dev"}, "--image-factory-url / IMAGE_FACTORY_URL: must begin with https:// or http://"},
		{
			[]string{"PROVISIONER_CONCURRENCY", "0"},
			`--provisioner-concurrency / PROVISIONER_CONCURRENCY: "0" is not a whole number of 1 to 100`,
		},
		{
			[]string{"PROVISIONER_CONCURRENCY", "101"},
			`--provisioner-concurrency / PROVISIONER_CONCURRENCY: "101" is not a whole number of 1 to 100`,
		},
		{[]string{"MAX_CREATES", "many"}, `--max-creates / MAX_CREATES: "many" is not a whole number of 1 to 100`},
		{[]string{"SETTLE_TIME", "120"}, `--settle-time / SETTLE_TIME: "120" is not a time of 1s to 24h, such as 90s or 2m`},
		{[]string{"JANITOR", "yes"}, `--janitor / JANITOR: "yes" is none of off, dry-run and on`},
		{[]string{"SCRATCH_GRACE", "48h"}, `--scratch-grace / SCRATCH_GRACE: "48h" is not a time of 1s to 24h, such as 90s or 2m`},
		{[]string{"IMAGE_KEEP", "-1h"}, `--image-keep / IMAGE_KEEP: "-1h" is not a time of 1s to 87600h, such as 336h, nor 0`},
		{[]string{"IMAGE_KEEP_NEWEST", "101"}, `--image-keep-newest / IMAGE_KEEP_NEWEST: "101" is not a whole number of 0 to 100`},
		{[]string{"IMAGE_PRUNE_SILO", "maybe"}, `--image-prune-silo / IMAGE_PRUNE_SILO: "maybe" is neither on nor off`},
		{[]string{"HEALTH_ADDRESS", "8080"}, `--health-address / HEALTH_ADDRESS: "8080" is not HOST:PORT or :PORT`},
		{[]string{"PPROF_ADDRESS", ":6060"}, `--pprof-address / PPROF_ADDRESS: ":6060" is not HOST:PORT with an address of this host alone, such as 127.0.0.1:6060`},
		{[]string{"PPROF_ADDRESS", "0.0.0.0:6060"}, `--pprof-address / PPROF_ADDRESS: "0.0.0.0:6060" is not HOST:PORT with an address of this host alone, such as 127.0.0.1:6060`},
		{[]string{"PPROF_ADDRESS", "127.0.0.1:x"}, `--pprof-address / PPROF_ADDRESS: "127.0.0.1:x" is not HOST:PORT with an address of this host alone, such as 127.0.0.1:6060`},
		{[]string{"HEALTH_ADDRESS", ":http"}, `--health-address / HEALTH_ADDRESS: ":http" is not HOST:PORT or :PORT`},
		{[]string{"LOG_LEVEL", "loud"}, `--log-level / LOG_LEVEL: "loud" is not one of debug, info, warn, error`},
		{[]string{"LOG_FORMAT", "xml"}, `--log-format / LOG_FORMAT: "xml" is neither json nor console`},
		{[]string{"LOG_FORMAT", token}, `--log-format / LOG_FORMAT: the value (not shown) is neither json nor console`},

		{
			[]string{"OMNI_ENDPOINT", "omni", "LOG_LEVEL", "loud", "PROVISIONER_CONCURRENCY", "x", "OXIDE_TOKEN", ""},
			omniEndpoint + "must begin with https://, http:// or grpc://\n" +
				`--provisioner-concurrency / PROVISIONER_CONCURRENCY: "x" is not a whole number of 1 to 100` + "\n" +
				`--log-level / LOG_LEVEL: "loud" is not one of debug, info, warn, error` + "\n" +
				oxideToken + "is not set, host and token go together",
		},
	} {
		_, err := load(t, nil, environment(t, test.pairs...))

		var mistakes Mistakes
		if !errors.As(err, &mistakes) || len(mistakes.Lines()) != strings.Count(test.want, "\n")+1 {
			t.Errorf("%v: %v, want %s", test.pairs, err, test.want)

			continue
		}

		if err.Error() != test.want {
			t.Errorf("%v:\n got %s\nwant %s", test.pairs, err, test.want)
		}

		if strings.Contains(err.Error(), token) {
			t.Errorf("%v: the error shows the token", test.pairs)
		}
	}
}

func TestOxideHostAsTheClientTakesIt(t *testing.T) {
	t.Parallel()

	for host, want := range map[string]string{
		"silo.sys.example.com":      "https://silo.sys.example.com",
		"silo.sys.example.com:8443": "https://silo.sys.example.com:8443",
		"http://127.0.0.1:12220/":   "http://127.0.0.1:12220",
		"https://[::1]:12220":       "https://[::1]:12220",
	} {
		c, err := load(t, nil, environment(t, "OXIDE_HOST", host))
		if err != nil || c.Oxide.Host != want {
			t.Errorf("%s: %q, %v", host, c.Oxide.Host, err)
		}
	}
}

func TestProfile(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	path := filepath.Join(dir, "credentials.toml")
	content := "[profile.lab]\nhost = \"https://silo\"\ntoken = \"" + token + "\"\n[profile.half]\nhost = \"https://silo\"\n"

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	env := environment(t, "OXIDE_HOST", "", "OXIDE_TOKEN", "", "OXIDE_CONFIG_DIR", dir, "OXIDE_PROFILE", "lab")

	c, err := load(t, nil, env)
	if err != nil || c.Oxide != (Oxide{Profile: "lab", ConfigDir: dir}) {
		t.Errorf("%v, %v", c, err)
	}

	for _, profile := range []string{"half", "other"} {
		env["OXIDE_PROFILE"] = profile

		want := "--oxide-profile / OXIDE_PROFILE: " + path + " has no profile \"" + profile + "\" with a host and a token that can be read"
		if _, err = load(t, nil, env); err == nil || err.Error() != want {
			t.Errorf("%s: %v", profile, err)
		}
	}

	// A broken file must not end up in the error: it holds tokens.
	if err = os.WriteFile(path, []byte("[profile.lab]\ntoken = "+token), 0o600); err != nil {
		t.Fatal(err)
	}

	if _, err = load(t, nil, env); err == nil || strings.Contains(err.Error(), "oxide-token") && strings.Contains(err.Error(), "0123") {
		t.Errorf("%v", err)
	}
}

// Invariant: a command that talks to the rack alone asks for nothing of Omni, and
// checks what it asks for as the daemon does.
func TestTheRackAloneNeedsNothingOfOmni(t *testing.T) {
	t.Parallel()

	read := func(env map[string]string) (Config, error) {
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		loader := RegisterRack(flags)

		if flags.Lookup("oxide-host") == nil || flags.Lookup("omni-endpoint") != nil || flags.Lookup("provider-id") != nil {
			t.Error("the flags are not those of the rack alone")
		}

		return loader.Load(func(name string) (string, bool) {
			v, ok := env[name]

			return v, ok
		})
	}

	c, err := read(map[string]string{"OXIDE_HOST": "https://silo.sys.example.com", "OXIDE_TOKEN": token, "OMNI_ENDPOINT": "no URL at all"})
	if err != nil || c.Oxide.Token.Reveal() != token || c.Oxide.Host != "https://silo.sys.example.com" {
		t.Errorf("%+v, %v", c.Oxide, err)
	}

	if _, err := read(map[string]string{"OXIDE_HOST": "https://silo.sys.example.com"}); err == nil || !strings.Contains(err.Error(), "OXIDE_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
}
