package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const alertsHead = `# Alerts

[The rules](../../hack/prometheus/alerts.yaml) for Prometheus are about one job and namespace each, whatever the number of
replicas: give each provider ID a job of its own. [Metrics](metrics.md) has what they are made of. This page is made by a
test: ` + "`OIPO_UPDATE=1 go test ./internal/docs -run TestTheAlertsPageIsThatOfTheRules`" + `.

| Alert | After | Severity | When, and what to do |
|---|---|---|---|
`

// Invariant: the page has each alert, as the rules say it.
func TestTheAlertsPageIsThatOfTheRules(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../../hack/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				For         string
				Labels      struct{ Severity string }
				Annotations struct{ Summary, Description string }
			}
		}
	}

	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}

	want := alertsHead

	for _, group := range file.Groups {
		for _, r := range group.Rules {
			if r.Alert == "" || r.Labels.Severity == "" || r.Annotations.Description == "" {
				t.Errorf("%+v says too little", r)
			}

			want += fmt.Sprintf("| `%s` | %s | %s | %s. %s |\n", r.Alert, r.For, r.Labels.Severity, plain(r.Annotations.Summary), plain(r.Annotations.Description))
		}
	}

	if os.Getenv("OIPO_UPDATE") != "" {
		if err := os.WriteFile("alerts.md", []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	if page(t, "alerts") != want {
		t.Error("alerts.md is old: run this with OIPO_UPDATE=1")
	}
}

// plain is a text of a rule without Prometheus' templates.
func plain(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("|", `\|`).Replace(templates.ReplaceAllString(text, "…"))), " ")
}
