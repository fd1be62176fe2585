package docs_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
)

func TestMetricsPageIsThatOfTheCode(t *testing.T) {
	t.Parallel()

	if docs.Metrics != metrics.Reference() {
		t.Error("metrics.md is old: run make generate")
	}
}

// Invariant: the page says what the code does.
func TestMachineClassPageIsThatOfTheCode(t *testing.T) {
	t.Parallel()

	if docs.MachineClass != machineclass.Reference() {
		t.Error("machine-class.md is old: run make generate")
	}
}

// Invariant: the table of rules names tests that are there.
func TestTheRulesNameTestsThatExist(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("rules.md")
	if err != nil {
		t.Fatal(err)
	}

	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)

	err = fs.WalkDir(os.DirFS("../.."), ".", func(path string, d fs.DirEntry, err error) error {
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

	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 50 {
		t.Errorf("%d tests are named", len(named))
	}

	for _, m := range named {
		if !tests[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}
