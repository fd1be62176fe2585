package config

import (
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
)

func page(t *testing.T, name string) string {
	t.Helper()

	text, err := docs.Page(name)
	if err != nil {
		t.Fatal(err)
	}

	return text
}

// Invariant: the page says every option as it is.
func TestThePageHasTheOptions(t *testing.T) {
	t.Parallel()

	if page(t, "options") != OptionsPage() {
		t.Error("options.md is old: run make generate")
	}

	for _, o := range options() {
		if !strings.Contains(OptionsPage(), "`"+o.env+"`") {
			t.Errorf("%s is not on the page", o.env)
		}
	}
}

// And the page on networks.
func TestThePageHasTheNetworkOptions(t *testing.T) {
	t.Parallel()

	wantTable(t, page(t, "networks"), "TestThePageHasTheNetworkOptions", NetworkReference())
}

// And the page on images those on images.
func TestThePageHasTheImageOptions(t *testing.T) {
	t.Parallel()

	wantTable(t, page(t, "images"), "TestThePageHasTheImageOptions", ImageReference())
}

func wantTable(t *testing.T, page, mark, want string) {
	t.Helper()

	_, rest, _ := strings.Cut(page, mark+" -->\n")
	table, _, found := strings.Cut(rest, "<!-- end of options -->")

	if !found || strings.TrimSpace(table) != strings.TrimSpace(want) {
		t.Errorf("the table is not this:\n%s", want)
	}
}
