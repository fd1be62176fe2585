package systemd_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
)

const unit = "omni-infra-provider-oxide@.service"

// exposure is the most that systemd's measure of what a service could do may be,
// in tenths. What is left is that it talks to other hosts, wherever they are, and
// to systemd.
const exposure = "11"

// analyze runs systemd-analyze. Where it is missing a developer's test is
// skipped, and one of the checks for a change fails.
func analyze(t *testing.T, args ...string) string {
	t.Helper()

	out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()

	switch {
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "":
		t.Skip("systemd-analyze is not installed, it is in Debian's package systemd")
	case err != nil:
		t.Fatalf("systemd-analyze %v: %v\n%s", args, err, out)
	}

	return string(out)
}

func read(t *testing.T, name string) string {
	t.Helper()

	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// Invariant: systemd takes the unit without a word.
func TestSystemdTakesTheUnit(t *testing.T) {
	t.Parallel()

	// What it would start must be there.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	text := strings.ReplaceAll(read(t, unit), "/usr/bin/omni-infra-provider-oxide", self)
	file := filepath.Join(t.TempDir(), unit)

	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	if out := analyze(t, "verify", "--man=no", file); strings.TrimSpace(out) != "" {
		t.Error(out)
	}
}

// Invariant: a daemon that was taken over could do little.
func TestTheUnitIsConfined(t *testing.T) {
	t.Parallel()

	out := analyze(t, "security", "--no-pager", "--offline=true", "--threshold="+exposure, "./"+unit)
	if !strings.Contains(out, "Overall exposure level") {
		t.Error(out)
	}
}

// Invariant: each variable is one that the daemon reads.
func TestVariablesAreTheDaemons(t *testing.T) {
	t.Parallel()

	options := config.OptionsPage()
	variable := regexp.MustCompile(`(?m)(?:^#?|Environment=|\s)([A-Z][A-Z_]+)=`)

	for _, name := range []string{unit, "example.env"} {
		found := variable.FindAllStringSubmatch(read(t, name), -1)
		if len(found) < 2 {
			t.Errorf("%s: %d variables", name, len(found))
		}

		for _, f := range found {
			if !strings.Contains(options, "`"+f[1]+"`") {
				t.Errorf("%s: there is no variable %s", name, f[1])
			}
		}
	}
}

// Invariant: a wrong configuration ends the unit, everything else is tried again,
// and a stop has more time than the daemon takes for it.
func TestTheUnitKnowsTheDaemon(t *testing.T) {
	t.Parallel()

	text := read(t, unit)

	for _, line := range []string{
		"Type=notify", "Restart=always", "RestartPreventExitStatus=2", "TimeoutStopSec=40",
		"LoadCredential=omni-key:/etc/omni-infra-provider-oxide/%i.omni-key",
		"LoadCredential=oxide-token:/etc/omni-infra-provider-oxide/%i.oxide-token",
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the unit has no line %s", line)
		}
	}

	if !strings.Contains(config.OptionsPage(), "| `--shutdown-grace` | `SHUTDOWN_GRACE` | `25s` |") {
		t.Error("the grace is another one: TimeoutStopSec must be more")
	}

	if !strings.Contains(read(t, "sysusers.conf"), "u omni-infra-provider-oxide ") || !strings.Contains(text, "User=omni-infra-provider-oxide\n") {
		t.Error("the unit runs as a user that is not made")
	}
}
