package rack

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// documented are the steps from state to state in the tables of the package
// comment, by kind. Every rack of this package's tests is held to them.
func documented(t *testing.T) map[string][][2]string {
	t.Helper()

	steps, err := readDocumented()
	if err != nil {
		t.Fatal(err)
	}

	return steps
}

var readDocumented = sync.OnceValues(func() (map[string][][2]string, error) {
	raw, err := os.ReadFile("doc.go")
	if err != nil {
		return nil, err
	}

	out := map[string][][2]string{}
	heading := ""

	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "//"))

		if rest, is := strings.CutPrefix(line, "# "); is {
			heading = rest
		}

		columns := strings.Split(line, "|")
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}

		switch {
		case len(columns) == 3 && heading == "Disks":
			out[kindDisk] = append(out[kindDisk], stepsOf(diskStates, columns)...)
		case len(columns) == 3 && heading == "Instances":
			out[kindInstance] = append(out[kindInstance], stepsOf(runStates, columns)...)
		case len(columns) == 4 && columns[0] == "snapshot":
			out[kindSnapshot] = append(out[kindSnapshot], stepsOf(snapshotStates, columns[1:])...)
		}
	}

	return out, nil
})

var (
	diskStates = []string{
		"creating", "detached", "import_ready", "importing_from_bulk_writes", "finalizing", "maintenance",
		"attached", "detaching", "faulted",
	}
	runStates      = []string{"creating", "starting", "running", "stopping", "stopped", "rebooting", "migrating", "failed"}
	withVM         = []string{"starting", "running", "rebooting", "migrating"}
	snapshotStates = []string{"creating", "ready", "faulted"}

	word = regexp.MustCompile(`[a-z_]+`)
)

// stepsOf reads a row: state, event, becomes. What becomes of a state is a chain
// of states, or one of several.
func stepsOf(states, columns []string) [][2]string {
	var from []string

	switch columns[0] {
	case "any":
		from = states
	case "any with a VM":
		from = withVM
	default:
		for s := range strings.SplitSeq(columns[0], ", ") {
			if slices.Contains(states, s) {
				from = append(from, s)
			}
		}
	}

	becomes, _, _ := strings.Cut(columns[2], ", named")

	var out [][2]string

	for _, at := range from {
		for _, to := range word.FindAllString(becomes, -1) {
			if !slices.Contains(states, to) {
				continue
			}

			out = append(out, [2]string{at, to})

			if !strings.Contains(becomes, " or ") {
				at = to
			}
		}
	}

	return out
}

func TestTheTablesOfThePackageCommentAreRead(t *testing.T) {
	tables := documented(t)

	for kind, some := range map[string][][2]string{
		kindDisk:     {{"creating", "import_ready"}, {"finalizing", "import_ready"}, {"maintenance", "detached"}, {"attached", "faulted"}},
		kindInstance: {{"migrating", "stopping"}, {"stopping", "failed"}, {"failed", "starting"}, {"creating", "stopped"}},
		kindSnapshot: {{"creating", "ready"}},
	} {
		for _, step := range some {
			if !slices.Contains(tables[kind], step) {
				t.Errorf("%s: %v is not read: %v", kind, step, tables[kind])
			}
		}
	}

	for _, step := range [][2]string{{"detached", "import_ready"}, {"attached", "finalizing"}, {"import_ready", "attached"}} {
		if slices.Contains(tables[kindDisk], step) {
			t.Errorf("%v is read, and is not there", step)
		}
	}

	for _, step := range [][2]string{{"stopped", "running"}, {"failed", "running"}, {"running", "stopped"}, {"stopping", "starting"}} {
		if slices.Contains(tables[kindInstance], step) {
			t.Errorf("%v is read, and is not there", step)
		}
	}
}
