package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// The README says every option as it is.
func TestREADMEHasTheOptions(t *testing.T) {
	t.Parallel()

	_, rest, _ := strings.Cut(readme(t), "TestREADMEHasTheOptions -->\n")
	table, _, found := strings.Cut(rest, "\n<!-- end of options -->")

	if !found || strings.TrimSpace(table) != strings.TrimSpace(Reference()) {
		t.Errorf("the README's table is not this:\n%s", Reference())
	}
}
