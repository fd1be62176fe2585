package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

// upgradeFrom is the file that names the commit that must be replaceable by this
// one, and this one by it.
const upgradeFrom = "../../hack/upgrade-from"

// buildFrom builds the daemon of the commit that upgradeFrom names.
func buildFrom(t *testing.T) string {
	t.Helper()

	commit := strings.TrimSpace(string(must(os.ReadFile(upgradeFrom))(t)))
	if len(commit) != 40 {
		t.Fatalf("%s names %q, which is no full hash of a commit", upgradeFrom, commit)
	}

	// Of the whole tree, whatever directory this runs in.
	archive := exec.CommandContext(t.Context(), "git", "-C", "../..", "archive", "--format=tar", commit)

	var why bytes.Buffer

	archive.Stderr = &why

	tree, err := archive.Output()
	if err != nil {
		// A clone of the newest commits alone, or a source archive, can not have it.
		if os.Getenv("CI") != "" && wholeHistory(t) {
			t.Fatalf("the history does not reach back to %s: %v: %s", commit, err, why.String())
		}

		t.Skipf("the history does not reach back to %s: %v: %s", commit, err, why.String())
	}

	dir := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(tree)

	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpacking %s: %v: %s", commit, err, out)
	}

	old := filepath.Join(dir, "old-daemon")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", old, "./cmd/omni-infra-provider-oxide")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")

	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", commit, err, out)
	}

	return old
}

// Invariant: what an older daemon was at, a newer one brings to its end, and the
// other way round: at each step of a machine's way, and of its end, the process is
// killed and the other version is started, which comes to exactly what was asked
// for and leaves nothing when all is taken away again.
func TestAnotherVersionTakesOverAtEachStep(t *testing.T) {
	t.Parallel()

	if err := provider.Bind(crashProvider); err != nil {
		t.Fatal(err)
	}

	old := buildFrom(t)

	for name, way := range map[string][2]string{"upgrade": {old, binary}, "back again": {binary, old}} {
		for _, at := range []struct {
			step     string
			scenario scenario
			point    killPoint
		}{
			{"plan", firstMachine(), killPoint{before, 1, "rack project_view"}},
			{"image", firstMachine(), killPoint{after, 1, "rack disk_bulk_write_import_start"}},
			{"instance", secondMachine(), killPoint{after, 1, "rack instance_create"}},
			{"config", secondMachine(), killPoint{before, 1, "omni Create ConfigPatchRequests"}},
			{"start", secondMachine(), killPoint{before, 1, "rack instance_start"}},
			{"stop", scaleDown(), killPoint{after, 1, "rack instance_stop"}},
			{"delete", scaleDown(), killPoint{after, 1, "rack instance_delete"}},
			{"disks", scaleDown(), killPoint{before, 1, "rack disk_delete"}},
		} {
			t.Run(name+" at "+at.step, func(t *testing.T) {
				t.Parallel()

				at.scenario.first, at.scenario.then = way[0], way[1]
				report := &crashReport{}
				points := report.play(t, at.scenario, &at.point)

				if report.unreached > 0 {
					t.Errorf("%s was never called: %v", at.point.call, points)
				}
			})
		}
	}
}

// wholeHistory says whether this is a clone of all commits.
func wholeHistory(t *testing.T) bool {
	t.Helper()

	shallow, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "rev-parse", "--is-shallow-repository").Output()

	return err == nil && strings.TrimSpace(string(shallow)) == "false"
}
