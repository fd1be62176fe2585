package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
)

// page is the text of a topic.
func page(t *testing.T, name string) string {
	t.Helper()

	text, err := docs.Page(name)
	if err != nil {
		t.Fatal(err)
	}

	return text
}

// Invariant: all that stands here can be read from the binary, with a line on what
// it is about.
func TestEachPageIsATopic(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}

	topics := docs.Topics()
	if len(files) != len(topics) {
		t.Errorf("%d files, %d topics", len(files), len(topics))
	}

	for _, topic := range topics {
		if text := page(t, topic.Name); !strings.HasPrefix(text, "# ") {
			t.Errorf("%s has no title", topic.Name)
		}

		if topic.Summary == "" || len(topic.Summary) > 90 || strings.Contains(topic.Summary, "\n") {
			t.Errorf("%s: the summary %q is no short line", topic.Name, topic.Summary)
		}
	}

	for _, file := range files {
		if _, err := docs.Page(strings.TrimSuffix(file, ".md")); err != nil {
			t.Error(err)
		}
	}

	if _, err := docs.Page("none"); err == nil || !strings.Contains(err.Error(), "machine-class, ") {
		t.Errorf("a page that is not there: %v", err)
	}
}

func TestMetricsPageIsThatOfTheCode(t *testing.T) {
	t.Parallel()

	if page(t, "metrics") != metrics.Reference() {
		t.Error("metrics.md is old: run make generate")
	}
}

// Invariant: the page says what the code does.
func TestMachineClassPageIsThatOfTheCode(t *testing.T) {
	t.Parallel()

	if page(t, "machine-class") != machineclass.Reference() {
		t.Error("machine-class.md is old: run make generate")
	}
}

// Invariant: the table of rules names tests that are there.
func TestTheRulesNameTestsThatExist(t *testing.T) {
	t.Parallel()

	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)

	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		code, err := os.ReadFile("../../" + path)
		for _, m := range declared.FindAllSubmatch(code, -1) {
			tests[string(m[1])] = true
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page(t, "rules"), -1)
	if len(named) < 50 {
		t.Errorf("%d tests are named", len(named))
	}

	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}
