package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Invariant: no way of printing a Config shows a secret.
func TestNothingShowsASecret(t *testing.T) {
	t.Parallel()

	c, err := load(t, nil, environment(t))
	if err != nil {
		t.Fatal(err)
	}

	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	log.Info("config", zap.Object("config", c), zap.Any("any", c), zap.Any("key", c.Omni.Key), zap.Stringer("token", c.Oxide.Token))

	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}

	texts := []string{
		c.String(), string(encoded), fmt.Sprint(logs.All()[0].ContextMap()), c.Oxide.Token.String(),
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, c), fmt.Sprintf(verb, c.Oxide), fmt.Sprintf(verb, c.Oxide.Token), fmt.Sprintf(verb, &c.Omni))
	}

	for _, text := range texts {
		for _, secret := range []string{c.Oxide.Token.Reveal(), c.Omni.Key.Reveal()[:40]} {
			if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
				t.Errorf("%q shows a secret", text)
			}
		}
	}

	if !strings.Contains(c.String(), `oxide-token="[redacted]"`) || !strings.Contains(c.String(), `provider-id="oxide"`) {
		t.Errorf("%s", c)
	}

	if Secret("").String() != "" {
		t.Error("a secret that is not set looks as if it were")
	}
}

func TestEveryOptionIsInHelpAndReference(t *testing.T) {
	t.Parallel()

	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Register(flags)

	help, reference := flags.FlagUsages(), OptionsPage()
	names := map[string]bool{}

	for _, o := range options() {
		flag := "--" + o.flag
		if o.secret {
			flag += "-file"
		}

		for _, name := range []string{flag, o.env} {
			if !strings.Contains(help, name) || !strings.Contains(reference, "`"+name+"`") {
				t.Errorf("%s is not in help and reference", name)
			}

			if names[name] {
				t.Errorf("%s names two options", name)
			}

			names[name] = true
		}

		if o.secret && (!strings.Contains(help, o.fileEnv()) || !strings.Contains(reference, o.fileEnv())) {
			t.Errorf("%s is not in help and reference", o.fileEnv())
		}

		if strings.ContainsAny(o.help, "|\n") {
			t.Errorf("%s: %q breaks the table", o.flag, o.help)
		}
	}

	if lines := strings.Count(reference, "\n| `--"); lines != len(options()) {
		t.Errorf("%d options in\n%s", lines, reference)
	}
}

// Invariant: the variables of the published provider keep their names.
func TestPublishedVariables(t *testing.T) {
	t.Parallel()

	known := map[string]bool{}
	for _, o := range options() {
		known[o.env] = true
	}

	for _, env := range []string{
		"OXIDE_HOST", "OXIDE_TOKEN", "PROVIDER_ID", "PROVIDER_NAME", "PROVIDER_DESCRIPTION", "PROVISIONER_CONCURRENCY",
		"OMNI_ENDPOINT", "OMNI_SERVICE_ACCOUNT_KEY",
	} {
		if !known[env] {
			t.Errorf("%s is unknown", env)
		}
	}
}
