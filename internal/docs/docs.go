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
		{"quickstart", "From nothing to a running cluster, and back"},
		{"installing", "As a container, with systemd, on Kubernetes"},
		{"concepts", "The words, the way of a request, and what is stored where"},
		{"permissions", "The least roles in the rack and in Omni, and what each is for"},
		{"networks", "Ways out, proxies, certificates, keys and tokens that change"},
		{"machine-class", "All fields of a machine class"},
		{"options", "All flags and environment variables"},
		{"commands", "All commands and their flags"},
		{"images", "Where images are kept, for how long, and how one comes in by hand"},
		{"air-gapped", "Sites without a way to the internet"},
		{"silos", "Several silos, racks, Omni accounts and replicas"},
		{"scale", "What bounds a daemon, what was measured, and how a large site is laid out"},
		{"operating", "Health, commands and logs"},
		{"metrics", "All metrics"},
		{"alerts", "All alerts, and what to do"},
		{"troubleshooting", "What to do about what you read, by its words"},
		{"errors", "What people see of each kind of error"},
		{"offboarding", "Taking a provider away without leaving anything"},
		{"upgrade", "What works with what, and replacing the daemon"},
		{"changelog", "What changed, and what one must do about it"},
		{"security", "What is trusted with what, and what bounds it"},
		{"rules", "What always holds, and which test shows it"},
		{"architecture", "The code, for those who change it"},
		{"calls", "What the daemon asks of the rack and of Omni, and why"},
		{"simulators", "How the simulators work, and what they do not cover"},
		{"releasing", "The steps of a release, for those who make one"},
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
