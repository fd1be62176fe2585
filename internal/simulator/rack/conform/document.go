package conform

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/google/uuid"
)

// document is the API's document, ready to check with.
type document struct {
	closed  *spec
	written func() (*spec, error) // as it is written; read when first needed
	options *openapi3filter.Options
}

var (
	loadedMu sync.Mutex
	loaded   = map[string]*document{}
)

// load reads a document, once in a process.
func load(path string) (*document, error) {
	loadedMu.Lock()
	defer loadedMu.Unlock()

	if d := loaded[path]; d != nil {
		return d, nil
	}

	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the API document that %s names: %w", DocumentVariable, err)
	}

	defineFormats()

	closed, err := parse(raw, true)
	if err != nil {
		return nil, fmt.Errorf("reading the API document that %s names: %s: %w", DocumentVariable, path, err)
	}

	d := &document{
		closed:  closed,
		written: sync.OnceValues(func() (*spec, error) { return parse(raw, false) }),
		options: &openapi3filter.Options{
			MultiError: true, IncludeResponseStatus: true, RegexCompiler: pattern, SkipSettingDefaults: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	}
	loaded[path] = d

	return d, nil
}

func parse(raw []byte, closed bool) (*spec, error) {
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}

	prepare(tree, closed)

	raw, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}

	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, err
	}

	if doc.Paths.Len() == 0 {
		return nil, errors.New("it has no paths")
	}

	// The validation compiles the patterns. What it finds in the document itself
	// is none of ours.
	_ = doc.Validate(context.Background(), openapi3.SetRegexCompiler(pattern),
		openapi3.DisableExamplesValidation(), openapi3.DisableSchemaDefaultsValidation())

	return newSpec(doc), nil
}

// prepare says in a way that the validator understands that a reference may be
// null, and closes objects to keys that they do not have.
func prepare(v any, closed bool) {
	switch t := v.(type) {
	case map[string]any:
		for _, x := range t {
			prepare(x, closed)
		}

		if all, isList := t["allOf"].([]any); isList && t["nullable"] == true && len(all) == 1 {
			delete(t, "allOf")
			t["anyOf"] = []any{all[0], map[string]any{"nullable": true, "enum": []any{nil}}}
		}

		props, isMap := t["properties"].(map[string]any)
		if _, has := t["additionalProperties"]; closed && !has && isMap && len(props) > 0 && t["type"] == "object" {
			t["additionalProperties"] = false
		}
	case []any:
		for _, x := range t {
			prepare(x, closed)
		}
	}
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
