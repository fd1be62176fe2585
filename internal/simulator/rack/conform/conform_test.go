package conform

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// A document of one thing that can be made, listed and written to.
const tiny = `{
 "openapi": "3.0.3", "info": {"title": "tiny", "version": "1"},
 "paths": {
  "/things": {
   "get": {"operationId": "thing_list", "parameters": [{"in": "query", "name": "limit", "schema": {"type": "integer"}}],
    "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}}},
   "post": {"operationId": "thing_create",
    "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
    "responses": {"201": {"description": "", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
     "4XX": {"description": "", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}}}},
  "/things/{thing}/write": {
   "post": {"operationId": "disk_bulk_write_import", "parameters": [{"in": "path", "name": "thing", "required": true, "schema": {"type": "string"}}],
    "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Write"}}}},
    "responses": {"204": {"description": ""}}}}
 },
 "components": {"schemas": {
  "Thing": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^(?![0-9]+$)^[a-z0-9]+$"}}, "required": ["name"]},
  "Write": {"type": "object", "properties": {"offset": {"type": "integer"}, "base64_encoded_data": {"type": "string"}}, "required": ["offset", "base64_encoded_data"]},
  "Error": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
 }}
}`

func document1(t *testing.T, text string) (report string) {
	t.Helper()

	dir := t.TempDir()
	path, report := filepath.Join(dir, "api.json"), filepath.Join(dir, "report")

	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv(DocumentVariable, path)
	t.Setenv(ReportVariable, report)

	return report
}

type try struct {
	name, method, path, agent, body string
	status                          int
	answer                          string
	spoiled                         bool
	want                            string // side: part of the problem; empty for none
}

func (c try) exchange(t *testing.T) Exchange {
	t.Helper()

	r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, http.NoBody)
	r.Header.Set("User-Agent", c.agent)

	h := http.Header{}
	if c.answer != "" {
		h.Set("Content-Type", "application/json")
	}

	return Exchange{Request: r, Body: []byte(c.body), Status: c.status, Header: h, Answer: []byte(c.answer), Spoiled: c.spoiled}
}

func (c try) withJSON(t *testing.T) Exchange {
	t.Helper()

	x := c.exchange(t)
	x.Request.Header.Set("Content-Type", "application/json")

	return x
}

// The rule of what a violation is, line by line.
func TestViolations(t *testing.T) {
	document1(t, tiny)

	daemon := version.UserAgent()

	for _, c := range []try{
		{name: "fits", method: "POST", path: "/things", agent: daemon, body: `{"name":"a"}`, status: 201, answer: `{"name":"a"}`},
		{name: "refused, the daemon's", method: "POST", path: "/things", agent: daemon, body: `{}`, status: 400, answer: `{"message":"no"}`, want: "request: name"},
		{name: "refused, another's", method: "POST", path: "/things", agent: "curl", body: `{}`, status: 400, answer: `{"message":"no"}`},
		{name: "taken, another's", method: "POST", path: "/things", agent: "curl", body: `{}`, status: 201, answer: `{"name":"a"}`, want: "request: name"},
		{name: "taken with another key", method: "POST", path: "/things", agent: "curl", body: `{"name":"a","x":1}`, status: 201, answer: `{"name":"a"}`},
		{name: "the daemon's with another key", method: "POST", path: "/things", agent: daemon, body: `{"name":"a","x":1}`, status: 201, answer: `{"name":"a"}`, want: "request: x"},
		{name: "no answer, the daemon's", method: "POST", path: "/things", agent: daemon, body: `{}`, want: "request: name"},
		{name: "no answer, another's", method: "POST", path: "/things", agent: "curl", body: `{}`},
		{name: "answer with another key", method: "GET", path: "/things", agent: "curl", status: 200, answer: `{"name":"a","x":1}`, want: "answer: x"},
		{name: "answer without its key", method: "GET", path: "/things", agent: "curl", status: 200, answer: `{}`, want: "answer: name"},
		{name: "answer of a status that is none", method: "GET", path: "/things", agent: "curl", status: 202, answer: `{}`, want: "answer: status"},
		{name: "error without its key", method: "POST", path: "/things", agent: "curl", body: `{}`, status: 400, answer: `{}`, want: "answer: message"},
		{name: "a fault's answer", method: "GET", path: "/things", agent: daemon, status: 200, answer: `<html>`, spoiled: true},
		{name: "a fault's answer to a bad request", method: "POST", path: "/things", agent: daemon, body: `{}`, status: 200, answer: `<html>`, spoiled: true, want: "request: name"},
		{name: "excluded by look-ahead", method: "POST", path: "/things", agent: daemon, body: `{"name":"12"}`, status: 400, answer: `{"message":"no"}`, want: "request: name"},
		{name: "unknown query, the daemon's", method: "GET", path: "/things?x=1", agent: daemon, status: 200, answer: `{"name":"a"}`, want: `request: unknown query parameter "x"`},
		{name: "unknown query, another's", method: "GET", path: "/things?x=1", agent: "curl", status: 200, answer: `{"name":"a"}`},
		{name: "bad query", method: "GET", path: "/things?limit=x", agent: "curl", status: 200, answer: `{"name":"a"}`, want: "request: limit"},
		{name: "no such operation, the daemon's", method: "PUT", path: "/things", agent: daemon, status: 501, answer: `{}`, want: "request: no such operation"},
		{name: "no such operation, another's", method: "PUT", path: "/things", agent: "curl", status: 501, answer: `{}`},
		{name: "no such operation, taken", method: "GET", path: "/thing", agent: "curl", status: 200, answer: `{}`, want: "request: no such operation"},
		{name: "write", method: "POST", path: "/things/a/write", agent: daemon, body: `{"offset":0,"base64_encoded_data":"AAAA"}`, status: 204},
		{name: "write without offset", method: "POST", path: "/things/a/write", agent: daemon, body: `{"base64_encoded_data":"AAAA"}`, status: 400, want: "request: offset"},
		{name: "write of a number", method: "POST", path: "/things/a/write", agent: daemon, body: `{"offset":0,"base64_encoded_data":7}`, status: 204, want: "request: base64_encoded_data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, err := New(zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}

			k.Check(c.withJSON(t))

			var got []string
			for _, v := range k.Violations() {
				got = append(got, v.Side+": "+v.Problem)
			}

			side, part, _ := strings.Cut(c.want, ": ")

			switch {
			case c.want == "" && len(got) == 0:
			case c.want == "" || len(got) == 0 || !strings.HasPrefix(got[0], side+": ") || !strings.Contains(got[0], part):
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A request without content type is JSON to the rack, but not one of the
// daemon's.
func TestContentTypes(t *testing.T) {
	document1(t, tiny)

	for agent, want := range map[string]int{"curl": 0, version.UserAgent(): 1} {
		k, err := New(zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}

		k.Check(try{method: "POST", path: "/things", agent: agent, body: `{"name":"a"}`, status: 201, answer: `{"name":"a"}`}.exchange(t))

		if got := k.Violations(); len(got) != want {
			t.Errorf("%s: %+v", agent, got)
		}
	}
}

// Many racks write one report, whose lines stay whole and add up.
func TestReport(t *testing.T) {
	report := document1(t, tiny)

	var wg sync.WaitGroup

	for range 8 {
		wg.Go(func() {
			k, err := New(zap.NewNop())
			if err != nil {
				t.Error(err)

				return
			}

			for n := range 50 {
				answer := `{"name":"a"}`
				if n%10 == 0 {
					answer = `{"name":"` + strings.Repeat("A", 2000) + `"}`
				}

				k.Check(try{method: "GET", path: "/things", status: 200, answer: answer}.exchange(t))
			}

			k.Close()
			k.Close() // says nothing twice
		})
	}

	wg.Wait()

	f, err := os.Open(report)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	var sum line

	noted := 0

	for lines := bufio.NewScanner(f); lines.Scan(); {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}

		if l.Kind == "violation" {
			noted++
		}

		sum.Exchanges += l.Exchanges
		sum.Violations += l.Violations
	}

	if noted != 40 || sum.Exchanges != 400 || sum.Violations != 40 {
		t.Errorf("%d violations noted, the sums are %d exchanges and %d violations", noted, sum.Exchanges, sum.Violations)
	}
}

func TestDocuments(t *testing.T) {
	t.Setenv(DocumentVariable, "")

	if k, err := New(zap.NewNop()); k != nil || err != nil {
		t.Errorf("without a document: %v, %v", k, err)
	}

	var none *Checker

	none.Check(Exchange{})
	none.Close()

	if none.Violations() != nil {
		t.Error("no checker found violations")
	}

	for _, text := range []string{"", "{", "{}", `{"openapi":"3.0.3","info":{"title":"","version":""},"paths":{}}`} {
		document1(t, text)

		if _, err := New(zap.NewNop()); err == nil || !strings.Contains(err.Error(), DocumentVariable) {
			t.Errorf("document %q: %v", text, err)
		}
	}

	t.Setenv(DocumentVariable, filepath.Join(t.TempDir(), "none"))

	if _, err := New(zap.NewNop()); err == nil || !strings.Contains(err.Error(), DocumentVariable) {
		t.Errorf("a missing document: %v", err)
	}
}

func TestWithoutText(t *testing.T) {
	for body, want := range map[string]string{
		`{"offset":0,"base64_encoded_data":"AAAA"}`:     `{"offset":0,"base64_encoded_data":""}`,
		`{"base64_encoded_data" : "AAAA" , "offset":0}`: `{"base64_encoded_data" : "" , "offset":0}`,
		`{"base64_encoded_data":7,"x":"y"}`:             `{"base64_encoded_data":7,"x":"y"}`,
		`{"base64_encoded_data":"A\u0041"}`:             `{"base64_encoded_data":"A\u0041"}`,
		`{"base64_encoded_data":"AAAA`:                  `{"base64_encoded_data":"AAAA`,
		`{"offset":0}`:                                  `{"offset":0}`,
		``:                                              ``,
		`{"x":"` + strings.Repeat("y", 300) + `","base64_encoded_data":"AA"}`: `{"x":"` + strings.Repeat("y", 300) + `","base64_encoded_data":""}`,
	} {
		if got := string(withoutText([]byte(body))); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}
