package talos_test

import (
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

func TestVersions(t *testing.T) {
	for _, test := range []struct {
		in, out   string
		bad       bool // not a version
		supported bool
		warns     bool
	}{
		{in: "1.13.5", out: "1.13.5", supported: true},
		{in: "v1.13.5", out: "1.13.5", supported: true},
		{in: "1.12.3", out: "1.12.3", supported: true},
		{in: "1.12.7", out: "1.12.7", supported: true},
		{in: "v1.14.0-rc.1", out: "1.14.0-rc.1", supported: true, warns: true},
		{in: "1.13.0-alpha.2", out: "1.13.0-alpha.2", supported: true, warns: true},
		{in: "1.13.0-alpha.2-7-gabcdef0", out: "1.13.0-alpha.2-7-gabcdef0", supported: true, warns: true},
		{in: "1.12.4-beta.0", out: "1.12.4-beta.0", supported: true, warns: true},
		{in: "2.0.0", out: "2.0.0", supported: true},
		{in: "1.12.3-beta.1", out: "1.12.3-beta.1"},
		{in: "1.12.0", out: "1.12.0"},
		{in: "v1.12.0", out: "1.12.0"},
		{in: "1.12.1", out: "1.12.1"},
		{in: "1.12.2", out: "1.12.2"},
		{in: "1.12.0-alpha.2", out: "1.12.0-alpha.2"},
		{in: "1.12.0-rc.0", out: "1.12.0-rc.0"},
		{in: "1.11.9", out: "1.11.9"},
		{in: "0.14.0", out: "0.14.0"},
		{in: "", bad: true},
		{in: "v", bad: true},
		{in: "latest", bad: true},
		{in: "1.13", bad: true},
		{in: "vv1.13.5", bad: true},
		{in: "V1.13.5", bad: true},
		{in: "1.13.5 ", bad: true},
		{in: "1.13.5\n", bad: true},
		{in: "1.013.5", bad: true},
		{in: "1.13.5+dirty", bad: true},
		{in: "1.13.5/../../x", bad: true},
		{in: strings.Repeat("9", 5000), bad: true},
	} {
		v, err := talos.ParseVersion(test.in)
		if (err != nil) != test.bad {
			t.Errorf("%.50q: error %v", test.in, err)

			continue
		}

		if err != nil {
			if msg := err.Error(); strings.ContainsAny(msg, "\n") || len(msg) > 200 || (len(test.in) < 40 && !strings.Contains(msg, strings.TrimSpace(test.in))) {
				t.Errorf("%.50q: unfit message %q", test.in, msg)
			}

			continue
		}

		if v.String() != test.out {
			t.Errorf("%q: is written %q", test.in, v)
		}

		reason := v.Supported()
		if (reason == nil) != test.supported {
			t.Errorf("%q: supported: %v", test.in, reason)
		}

		if reason != nil && (!strings.Contains(reason.Error(), test.out) || !strings.Contains(reason.Error(), "1.12.3")) {
			t.Errorf("%q: the reason does not name both versions: %v", test.in, reason)
		}

		if warning := v.Warning(); (warning != "") != test.warns || strings.Contains(warning, "\n") {
			t.Errorf("%q: warning %q", test.in, warning)
		}
	}
}

func TestNoVersionIsNotSupported(t *testing.T) {
	if (talos.Version{}).Supported() == nil {
		t.Fatal("the zero version is supported")
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	parse := func(s string) talos.Version {
		v, err := talos.ParseVersion(s)
		if err != nil {
			t.Fatal(err)
		}

		return v
	}

	if parse("1.13.0-alpha.2").Compare(parse("v1.13.0")) >= 0 || parse("1.9.0").Compare(parse("1.10.0")) >= 0 {
		t.Fatal("wrong order")
	}
}
