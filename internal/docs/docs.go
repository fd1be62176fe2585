// Package docs holds the pages for users that are longer than the README. The
// binary has them too: "omni-infra-provider-oxide docs".
//
// Pages that say what the code knows are made from the code: "make generate"
// writes them, "make generate-check" and tests tell when they are old.
package docs

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed *.md
var pages embed.FS

// Topic is one page: a file of this directory, without its ".md".
type Topic struct {
	Name string
	// Summary is one line on what the page is about.
	Summary string
}

// Topics returns all pages, in the order in which one reads them.
func Topics() []Topic {
	return []Topic{
		{"images", "Where images are kept, for how long, and how one comes in by hand"},
		{"machine-class", "All fields of a machine class"},
		{"options", "All flags and environment variables"},
		{"commands", "All commands and their flags"},
		{"networks", "Ways out, proxies, certificates, keys and tokens that change"},
		{"operating", "Health, commands and logs"},
		{"metrics", "All metrics"},
		{"errors", "What people see of each kind of error"},
		{"rules", "What always holds, and which test shows it"},
	}
}

// Page returns the text of a topic, in Markdown.
func Page(name string) (string, error) {
	for _, t := range Topics() {
		if t.Name == name {
			text, err := pages.ReadFile(name + ".md")

			return string(text), err
		}
	}

	return "", fmt.Errorf("there is no page %q: the pages are %s", name, strings.Join(Names(), ", "))
}

// Names returns the names of all topics, in their order.
func Names() []string {
	names := make([]string, 0, len(Topics()))
	for _, t := range Topics() {
		names = append(names, t.Name)
	}

	return names
}
