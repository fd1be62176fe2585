package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// command runs the program as a shell would.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer

	code = run(args, &out, &errs)

	return code, out.String(), errs.String()
}

func classFile(t *testing.T, text string) string {
	t.Helper()

	name := filepath.Join(t.TempDir(), "class.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return name
}

// Invariant: what a script reads from the exit code is so: 0 all is well, 1 the
// class has mistakes, 2 the command line is wrong or there is no such file.
func TestMachineClassExitCodes(t *testing.T) {
	t.Parallel()

	right, wrong := classFile(t, "project: talos\n"), classFile(t, "project: talos\ncpus: 300\nmemory: 0\n")

	for name, test := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"right":    {[]string{"validate", right}, 0, "no mistakes (1 checked)\n", ""},
		"wrong":    {[]string{"validate", wrong}, 1, "CLASS  FIELD   MISTAKE\n-      cpus    300 is over the limit of 254\n-      memory  0 is under the least of 1 GiB\n", ""},
		"no file":  {[]string{"validate", right + "x"}, 2, "", "usage: open " + right + "x: no such file or directory\n"},
		"no name":  {[]string{"validate"}, 2, "", "usage: validate takes one file, or -; see --help\n"},
		"two":      {[]string{"validate", right, wrong}, 2, "", "usage: validate takes one file, or -; see --help\n"},
		"output":   {[]string{"validate", right, "--output", "xml"}, 2, "", "usage: --output \"xml\" is neither table nor json\n"},
		"flag":     {[]string{"validate", right, "--strict"}, 2, "", "usage: unknown flag: --strict; see --help\n"},
		"command":  {[]string{"check"}, 2, "", "usage: unknown command \"check\"; see --help\n"},
		"argument": {[]string{"schema", "x"}, 2, "", "usage: omni-infra-provider-oxide machine-class schema takes no arguments; see --help\n"},
		"ID":       {[]string{"example", "--name", "a: b"}, 2, "", "usage: \"a: b\" is no ID: a letter, then letters, digits, ., _ and -\n"},
	} {
		code, stdout, stderr := command(append([]string{"machine-class"}, test.args...)...)
		if code != test.code || stdout != test.stdout || stderr != test.stderr {
			t.Errorf("%s: %d, %q, %q", name, code, stdout, stderr)
		}
	}
}

// A program reads each mistake with its field.
func TestValidateAnswersInJSON(t *testing.T) {
	t.Parallel()

	var answer struct {
		Valid   bool
		Classes []struct {
			Class    string
			Mistakes []machineclass.Mistake
		}
	}

	code, stdout, _ := command("machine-class", "validate", "-o", "json", classFile(t, "project: talos\nmemory: <8>\n"))
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil {
		t.Fatal(err)
	}

	want := machineclass.Mistake{Field: "memory", Text: `"<8>" is text, must be a whole number of GiB`}
	if code != 1 || answer.Valid || len(answer.Classes) != 1 || len(answer.Classes[0].Mistakes) != 1 || answer.Classes[0].Mistakes[0] != want {
		t.Errorf("%d, %+v", code, answer)
	}

	code, stdout, _ = command("machine-class", "validate", "--output=json", classFile(t, "project: talos\n"))
	if want := "{\n  \"valid\": true,\n  \"classes\": [\n    {\n      \"mistakes\": []\n    }\n  ]\n}\n"; code != 0 || stdout != want {
		t.Errorf("%d, %s", code, stdout)
	}
}

func TestValidateReadsStandardInput(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer

	root := newRootCommand()
	root.SetArgs([]string{"machine-class", "validate", "-"})
	root.SetIn(strings.NewReader("project: talos\n"))
	root.SetOut(&out)

	if err := root.ExecuteContext(t.Context()); err != nil || out.String() != "no mistakes (1 checked)\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

// Invariant: what is printed is what the daemon itself goes by, and the example
// passes the check beside it.
func TestMachineClassPrints(t *testing.T) {
	t.Parallel()

	for sub, want := range map[string]string{"schema": machineclass.Schema(), "reference": machineclass.Reference()} {
		if code, stdout, stderr := command("machine-class", sub); code != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: %d, %q", sub, code, stderr)
		}
	}

	_, example, _ := command("machine-class", "example", "--name", "large", "--provider-id", "oxide-a")
	if example != machineclass.Example("large", "oxide-a") {
		t.Errorf("example: %s", example)
	}

	if code, stdout, _ := command("machine-class", "validate", classFile(t, example)); code != 0 {
		t.Errorf("the example: %d, %s", code, stdout)
	}

	if code, stdout, _ := command("machine-class"); code != 0 || !strings.Contains(stdout, "validate") {
		t.Errorf("help: %d, %s", code, stdout)
	}
}
