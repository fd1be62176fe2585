package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
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

	wantTable(t, readme(t), "TestREADMEHasTheOptions", Reference())
}

// And the page on networks those that the README leaves to it.
func TestThePageHasTheNetworkOptions(t *testing.T) {
	t.Parallel()

	wantTable(t, docs.Networks, "TestThePageHasTheNetworkOptions", NetworkReference())
}

// And the page on images those on images.
func TestThePageHasTheImageOptions(t *testing.T) {
	t.Parallel()

	wantTable(t, docs.Images, "TestThePageHasTheImageOptions", ImageReference())
}

func wantTable(t *testing.T, page, mark, want string) {
	t.Helper()

	_, rest, _ := strings.Cut(page, mark+" -->\n")
	table, _, found := strings.Cut(rest, "<!-- end of options -->")

	if !found || strings.TrimSpace(table) != strings.TrimSpace(want) {
		t.Errorf("the table is not this:\n%s", want)
	}
}
