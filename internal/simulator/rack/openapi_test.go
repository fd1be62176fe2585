package rack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/uuid"
)

// documentEnv names the file with the API's OpenAPI document. When it is set,
// every exchange of this package's tests is held against it.
const documentEnv = "OIPO_OXIDE_OPENAPI"

var document struct {
	spec    *openapi3.T
	options *openapi3filter.Options
}

func loadDocument() error {
	path := os.Getenv(documentEnv)
	if path == "" {
		return nil
	}

	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", documentEnv, err)
	}

	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return fmt.Errorf("%s: %w", documentEnv, err)
	}

	strictSchemas(tree)

	if raw, err = json.Marshal(tree); err != nil {
		return fmt.Errorf("%s: %w", documentEnv, err)
	}

	defineFormats()

	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", documentEnv, err)
	}

	// The validation compiles the patterns. What it finds in the document itself
	// is none of ours.
	_ = doc.Validate(context.Background(), openapi3.SetRegexCompiler(pattern),
		openapi3.DisableExamplesValidation(), openapi3.DisableSchemaDefaultsValidation())

	document.spec = doc
	document.options = &openapi3filter.Options{
		MultiError: true, IncludeResponseStatus: true, RegexCompiler: pattern, SkipSettingDefaults: true,
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}

	return nil
}

// defineFormats teaches the validator the formats that tell variants apart.
func defineFormats() {
	openapi3.DefineStringFormatValidator("uuid", openapi3.NewCallbackValidator(uuid.Validate))

	for format, wantV4 := range map[string][]bool{"ipv4": {true}, "ipv6": {false}, "ip": {true, false}} {
		openapi3.DefineStringFormatValidator(format, openapi3.NewCallbackValidator(func(s string) error {
			a, err := netip.ParseAddr(s)
			if err == nil && !slices.Contains(wantV4, a.Is4()) {
				err = errors.New("wrong IP version")
			}

			return err
		}))
	}
}

// findRoute finds the operation of a request in the document; a path without
// parameters goes before one with them.
func findRoute(r *http.Request) (*routers.Route, map[string]string, error) {
	var (
		best       *routers.Route
		bestParams map[string]string
	)

	parts := strings.Split(r.URL.Path, "/")

	for path, item := range document.spec.Paths.Map() {
		op := item.GetOperation(r.Method)
		params, fits := matchPath(strings.Split(path, "/"), parts)

		if op != nil && fits && (best == nil || len(params) < len(bestParams)) {
			best = &routers.Route{Spec: document.spec, Path: path, PathItem: item, Method: r.Method, Operation: op}
			bestParams = params
		}
	}

	if best == nil {
		return nil, nil, routers.ErrPathNotFound
	}

	return best, bestParams, nil
}

func matchPath(template, parts []string) (map[string]string, bool) {
	if len(template) != len(parts) {
		return nil, false
	}

	params := map[string]string{}

	for i, t := range template {
		if strings.HasPrefix(t, "{") {
			params[strings.Trim(t, "{}")] = parts[i]
		} else if t != parts[i] {
			return nil, false
		}
	}

	return params, true
}

// strictSchemas closes objects to unknown properties, and says in a way that
// the validator understands that a reference may be null.
func strictSchemas(v any) {
	switch t := v.(type) {
	case map[string]any:
		for _, x := range t {
			strictSchemas(x)
		}

		if all, isList := t["allOf"].([]any); isList && t["nullable"] == true && len(all) == 1 {
			delete(t, "allOf")
			t["anyOf"] = []any{all[0], map[string]any{"nullable": true, "enum": []any{nil}}}
		}

		props, isMap := t["properties"].(map[string]any)
		if _, has := t["additionalProperties"]; !has && isMap && len(props) > 0 && t["type"] == "object" {
			t["additionalProperties"] = false
		}
	case []any:
		for _, x := range t {
			strictSchemas(x)
		}
	}
}

// butNot matches what one expression matches at its beginning and another does
// not.
type butNot struct{ not, yes *regexp.Regexp }

func (b butNot) MatchString(s string) bool { return !b.not.MatchString(s) && b.yes.MatchString(s) }

// pattern compiles a regular expression, which may begin with a negative
// look-ahead: the document excludes UUIDs from names so. The look-behinds of
// host names are left out.
func pattern(expr string) (openapi3.RegexMatcher, error) {
	expr = strings.ReplaceAll(expr, "(?<!-)", "")

	rest, has := strings.CutPrefix(expr, "^(?!")
	if !has {
		return regexp.Compile(expr)
	}

	end, depth := 0, 1

	for ; depth > 0 && end < len(rest); end++ {
		switch rest[end] {
		case '(':
			depth++
		case ')':
			depth--
		}
	}

	not, err := regexp.Compile("^(?:" + rest[:end-1] + ")")
	if err != nil {
		return nil, err
	}

	yes, err := regexp.Compile("^" + rest[end:])

	return butNot{not, yes}, err
}

type rawKey struct{}

// rawContext marks a request that is deliberately malformed.
func rawContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, rawKey{}, true)
}

type checkingTransport struct {
	t    *testing.T
	next http.RoundTripper
}

// checked holds what passes against the API document, if there is one.
func checked(t *testing.T, next http.RoundTripper) http.RoundTripper {
	if document.spec == nil {
		return next
	}

	return &checkingTransport{t, next}
}

func (c *checkingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte

	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}

		_ = r.Body.Close()
		body = b
		r.Body = io.NopCloser(bytes.NewReader(body))
	}

	in := c.request(r, body)

	resp, err := c.next.RoundTrip(r)
	if err != nil || in == nil {
		return resp, err
	}

	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}

	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(answer))

	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Options: document.options,
	}
	out.SetBodyBytes(answer)

	if err := openapi3filter.ValidateResponse(r.Context(), out); err != nil {
		c.report("answer", r, fmt.Errorf("%w; %d %.300s", err, resp.StatusCode, answer))
	}

	return resp, nil
}

func (c *checkingTransport) request(r *http.Request, body []byte) *openapi3filter.RequestValidationInput {
	raw := r.Context().Value(rawKey{}) != nil
	vr := r.Clone(r.Context())
	vr.Body = io.NopCloser(bytes.NewReader(body))

	route, params, err := findRoute(vr)
	if err != nil {
		if !raw && !strings.HasPrefix(r.URL.Path, "/simulator/") {
			c.report("request", r, err)
		}

		return nil
	}

	in := &openapi3filter.RequestValidationInput{Request: vr, PathParams: params, Route: route, Options: document.options}
	if raw {
		return in
	}

	known := map[string]bool{}
	for _, p := range route.Operation.Parameters {
		known[p.Value.Name] = true
	}

	for k := range r.URL.Query() {
		if !known[k] {
			c.report("request", r, fmt.Errorf("unknown query parameter %q", k))
		}
	}

	if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil {
		c.report("request", r, err)
	}

	return in
}

func (c *checkingTransport) report(side string, r *http.Request, err error) {
	var multi openapi3.MultiError
	if errors.As(err, &multi) {
		err = errors.Join(multi...)
	}

	c.t.Errorf("%s of %s %s does not fit the API document: %v", side, r.Method, r.URL.RequestURI(), err)
}

// Every operation that is served is one of the document's.
func TestServedOperationsAreTheDocuments(t *testing.T) {
	if document.spec == nil {
		t.Logf("%s is not set: nothing to compare with", documentEnv)

		return
	}

	for _, route := range apiRoutes() {
		method, path, _ := strings.Cut(route.pattern, " ")

		req, err := http.NewRequestWithContext(t.Context(), method, "http://rack"+path, nil)
		if err != nil {
			t.Fatal(err)
		}

		found, _, err := findRoute(req)
		if err != nil {
			t.Errorf("%s: %v", route.pattern, err)
		} else if found.Operation.OperationID != route.op {
			t.Errorf("%s is %s in the document, not %s", route.pattern, found.Operation.OperationID, route.op)
		}
	}
}
