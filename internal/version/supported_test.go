package version

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
)

func TestWhatIsSupported(t *testing.T) {
	t.Parallel()

	for v, ok := range map[string]bool{
		"v1.9.0": true, "1.9.3": true, "v1.10.0-beta.1": true, "v1.9.0-beta.1": true, "dev": true, "": true,
		"v1.8.9": false, "1.0.0": false, "v0.50.0": false,
	} {
		err := Omni(v)
		if (err == nil) != ok {
			t.Errorf("Omni %s: %v", v, err)
		}

		if err != nil && (!strings.Contains(err.Error(), MinimumOmni) || !strings.Contains(err.Error(), v)) {
			t.Errorf("Omni %s is told as %q", v, err)
		}
	}

	for v, ok := range map[string]bool{"1.12.2": false, "1.12.3": true, "1.12.3-rc.0": false, "1.14.0-alpha.1": true} {
		if err := Talos(semver.MustParse(v)); (err == nil) != ok {
			t.Errorf("Talos %s: %v", v, err)
		}
	}

	if got := OxideAPI("the rack", "server does not support this API version"); !strings.Contains(got, OxideAPIVersion) || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}

// The README promises what the code checks.
func TestTheREADMENamesTheSupportedVersions(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{
		"**Omni** " + strings.TrimSuffix(MinimumOmni, ".0") + " or later", "**Talos** " + MinimumTalos + " or later",
		"API version " + OxideAPIVersion, "release " + OxideRelease + " or later",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the README does not say %q", want)
		}
	}
}
