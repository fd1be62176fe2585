package provider

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"go.uber.org/zap/zapcore"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// errorCase is one error that a user can meet.
type errorCase struct {
	from, what string
	// fault is one of the rack; class is the request's, if not the default one.
	fault *simrack.Fault
	class string
	// factory answers for images, one of which is not in the rack then.
	factory http.HandlerFunc
	// talos is the request's version, if not the default one.
	talos string
	// omni does something to Omni.
	omni func(b *bench)
}

func answers(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, status) }
}

// fails is a fault of the rack: status 0 is no answer at all.
func fails(operation string, status int, code, message string) *simrack.Fault {
	f := &simrack.Fault{Action: simrack.ActionError, Operation: operation, Status: status, Code: code, Message: message}
	if status == 0 {
		f.Action = simrack.ActionReset
	}

	return f
}

func errorCases() []errorCase {
	const create = "instance_create"

	return []errorCase{
		{from: "rack", what: "no room (507)", fault: fails(create, 507, "InsufficientCapacity", "Insufficient capacity: No sleds can fit the requested instance")},
		{from: "rack", what: "object busy (409)", fault: fails(create, 409, "", "instance is busy")},
		{from: "rack", what: "name taken (400)", fault: fails(create, 400, "ObjectAlreadyExists", `already exists: instance "talos"`)},
		{from: "rack", what: "object gone (404)", fault: fails(create, 404, "ObjectNotFound", "not found: image with id \"none\"")},
		{from: "rack", what: "refused value (400)", fault: fails(create, 400, "InvalidRequest", "hostname is not valid")},
		{from: "rack", what: "role too small (403)", fault: fails(create, 403, "Forbidden", "Forbidden")},
		{from: "rack", what: "error within (500)", fault: fails(create, 500, "Internal", "Internal Server Error")},
		{from: "rack", what: "maintenance (503)", fault: fails("", 503, "ServiceNotAvailable", "Service Unavailable")},
		{from: "rack", what: "token refused (401)", fault: fails("", 401, "Unauthorized", "credentials missing or invalid")},
		{from: "rack", what: "other API version", fault: fails("", 400, "", "server does not support this API version: 2026060800")},
		{from: "rack", what: "no answer", fault: fails("", 0, "", "")},
		{from: "factory", what: "no such version (404)", factory: answers(404, "version v1.13.4 is not available"), talos: "1.13.4"},
		{from: "factory", what: "schematic gone (404)", factory: answers(404, `schematic ID "`+factorySchematic+`" not found`), talos: "1.13.4"},
		{from: "factory", what: "credentials refused (401)", factory: answers(401, "unauthorized"), talos: "1.13.4"},
		{from: "factory", what: "error within (500)", factory: answers(500, "internal error"), talos: "1.13.4"},
		{from: "factory", what: "overloaded (503)", factory: answers(503, "busy"), talos: "1.13.4"},
		{from: "class", what: "value over a limit", class: "project: demo\ncpus: 300\n"},
		{from: "class", what: "unknown key", class: "project: demo\ncores: 3\n"},
		{from: "class", what: "no such project", class: "project: none\n"},
		{from: "class", what: "no such VPC", class: "project: demo\nnetwork_interfaces:\n  - vpc_name: none\n    subnet_name: default\n"},
		{from: "class", what: "Talos too old", talos: "1.11.5"},
		{from: "Omni", what: "key revoked", omni: func(b *bench) { b.ok(b.omni.RevokeKeys(b.t.Context(), "infra-provider:"+testID)) }},
		{from: "Omni", what: "away", omni: func(b *bench) { b.omni.Stop() }},
	}
}

var (
	anID  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	aTime = regexp.MustCompile(`\d\d:\d\d:\d\d UTC`)
	// aCut is one that was cut with its line.
	aCut   = regexp.MustCompile(`rack request [0-9a-f-]*…`)
	aCount = regexp.MustCompile(`\(\d+ tries\)`)
)

// cell is a text without what differs from run to run, for a table.
func cell(s string) string {
	s = aCut.ReplaceAllString(anID.ReplaceAllString(s, "ID"), "rack request ID…")
	s = aCount.ReplaceAllString(aTime.ReplaceAllString(s, "TIME"), "(N tries)")
	if s = strings.Join(strings.Fields(s), " "); s == "" {
		return "-"
	}

	return strings.ReplaceAll(s, "|", `\|`)
}

// row has an error happen, and answers what people see of it.
func (c errorCase) row(t *testing.T) string {
	t.Helper()

	var out string

	bubble(t, func(t *testing.T, b *bench) {
		m := metrics.New()
		d := b.serve(func(o *Options) { o.Metrics = m })
		b.untilReady(d)

		if c.fault != nil {
			b.fault(*c.fault)
		}

		if c.factory != nil {
			b.download.Store(&c.factory)
		}

		if c.omni != nil {
			c.omni(b)
		} else {
			b.ask(theRequest, func(s *omnispecs.MachineRequestSpec) {
				if c.class != "" {
					s.ProviderData = c.class
				}

				if c.talos != "" {
					s.TalosVersion = c.talos
				}
			})
		}

		b.pass(4 * time.Minute)

		stage, shown := "-", ""

		if c.omni == nil {
			status := b.status(theRequest)
			stage, shown = status.GetStage().String(), status.GetStatus()

			if status.GetStage() == stageFailed {
				shown = status.GetError()
			}

			if shown == "" || status.GetStage() == stageProvisioned {
				t.Errorf("%s, %s: the request is %s and says %q", c.from, c.what, stage, shown)
			}
		} else if d.healthText() == "" {
			t.Errorf("%s, %s: health says nothing", c.from, c.what)
		}

		out = fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |\n",
			c.from, c.what, stage, cell(shown), cell(d.healthText()), cell(b.firstLoud()), cell(counted(scrape(t, m))))
	})

	return out
}

// firstLoud is the first line of the log at warn or above, with its error.
func (b *bench) firstLoud() string {
	all := b.logged(zapcore.WarnLevel)
	if len(all) == 0 {
		return ""
	}

	text := all[0].Level.String() + ": " + all[0].Message
	if err, ok := all[0].ContextMap()["error"].(string); ok {
		text += ": " + err
	}

	return text
}

// counted are the series by which an error is counted, and the needs that are not
// met.
func counted(series map[string]float64) string {
	var names []string

	for name, v := range series {
		switch {
		case v == 0 && strings.HasPrefix(name, "oipo_need_met"):
			names = append(names, "`"+name+"` is 0")
		case v > 0 && (strings.HasPrefix(name, "oipo_retries_total") || strings.HasPrefix(name, "oipo_omni_links_ended_total")):
			names = append(names, "`"+name+"`")
		}
	}

	slices.Sort(names)

	return strings.Join(names, ", ")
}

const errorPage = "../docs/errors.md"

const errorPageHead = `# Errors

What people see of each kind of error: the request's stage and line in Omni, the provider's health (in Omni and on
` + "`/readyz`" + `), the first line of the log, and the metric that counts it. IDs of the rack's requests are shown as ID: its
operators find the request by it. Waits go on by themselves; FAILED is for a person and is tried again each minute.

This page is made by a test, from errors that are made to happen:
` + "`OIPO_UPDATE=1 go test ./internal/provider -run TestTheErrorPageIsWhatPeopleSee`" + `.

| From | Error | Stage | The request says | Health says | The log says | Counted by |
|---|---|---|---|---|---|---|
`

// Invariant: each class of errors is seen by the user, in health, in the log or
// both, and in a metric, in just these words.
func TestTheErrorPageIsWhatPeopleSee(t *testing.T) {
	t.Parallel()

	var page strings.Builder

	page.WriteString(errorPageHead)

	for _, c := range errorCases() {
		page.WriteString(c.row(t))
	}

	// A class that is added has no row yet.
	for class := rack.ClassOK + 1; class.String() != "unknown"; class++ {
		if !strings.Contains(page.String(), `class="`+class.String()+`"`) {
			t.Errorf("no error of the class %s is on the page", class)
		}
	}

	if os.Getenv("OIPO_UPDATE") != "" {
		if err := os.WriteFile(errorPage, []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	written, err := docs.Page("errors")
	if err != nil {
		t.Fatal(err)
	}

	want := strings.Split(written, "\n")

	for i, line := range strings.Split(page.String(), "\n") {
		if i >= len(want) || line != want[i] {
			t.Errorf("errors.md is old, line %d is now\n%s", i+1, line)
		}
	}
}
