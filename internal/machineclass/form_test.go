package machineclass_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	strict "github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// formField is a schema as Omni's form reads it.
type formField map[string]any

func (f formField) text(key string) string {
	s, _ := f[key].(string)

	return s
}

func (f formField) child(key string) (formField, bool) {
	m, ok := f[key].(map[string]any)

	return m, ok
}

// walk visits every field of the form with its path.
func (f formField) walk(path string, visit func(path string, f formField)) {
	visit(path, f)

	properties, _ := f.child("properties")
	for key := range properties {
		inner, _ := properties.child(key)
		inner.walk(strings.TrimPrefix(path+"."+key, "."), visit)
	}

	if items, ok := f.child("items"); ok {
		items.walk(path+"[]", visit)
	}
}

func form(t *testing.T) formField {
	t.Helper()

	var f formField
	if err := json.Unmarshal([]byte(machineclass.Schema()), &f); err != nil {
		t.Fatal(err)
	}

	return f
}

// Invariant: Omni's form can show each field and a user can fill it in without
// reading anything else.
func TestEachFieldSuitsOmnisForm(t *testing.T) {
	t.Parallel()

	fields := 0

	form(t).walk("", func(path string, f formField) {
		fields++

		for rule, broken := range brokenRules(path, f) {
			if broken {
				t.Errorf("%q: %s: %v", path, rule, f)
			}
		}
	})

	if fields < 40 {
		t.Errorf("only %d fields were looked at", fields)
	}
}

func brokenRules(path string, f formField) map[string]bool {
	kind, help := f.text("type"), f.text("description")
	_, optionalText := f["pattern"]
	entry := strings.HasSuffix(path, "[]")
	required := path == "project" || path == "disks[].size"
	has := func(key string) bool { _, ok := f[key]; return ok }

	return map[string]bool{
		"no renderer for its type":         !slices.Contains([]string{"string", "integer", "boolean", "array", "object"}, kind),
		"no title":                         f.text("title") == "",
		"no help of one line":              path != "" && !entry && (help == "" || strings.Contains(help, "\n") || !strings.HasSuffix(help, ".")),
		"a help too long for a tip":        len(help) > 320,
		"another draft or another schema":  has("$schema") || has("$ref") || has("$id"),
		"a format, which drafts differ on": has("format"),
		// An empty optional number with inclusive bounds becomes NaN.
		"inclusive bounds":                                      has("minimum") || has("maximum") || has("multipleOf"),
		"a number without limits":                               kind == "integer" && (!has("exclusiveMinimum") || !has("exclusiveMaximum")),
		"a number whose help lacks unit or limits":              kind == "integer" && !regexp.MustCompile(`(GiB|Number).*, 1 to \d+`).MatchString(help),
		"a size without unit in its title":                      strings.Contains(path, "size") && !strings.HasSuffix(f.text("title"), "(GiB)"),
		"no word on what it is when left empty":                 kind != "object" && path != "" && !entry && !required && !strings.Contains(help, " Default: "),
		"a pattern without a message, or a message without one": optionalText != has("x-pattern-message"),
		"a list without limit, or without it in the help":       kind == "array" && (!has("maxItems") || !strings.Contains(help, fmt.Sprintf("at most %v", f["maxItems"]))),
		"a list without entries":                                kind == "array" && !has("items"),
		"a list that must not be left empty":                    has("minItems"),
		"an object that takes anything":                         kind == "object" && f["additionalProperties"] != false,
		"a choice that the help does not name":                  !allNamed(f, help),
		"other required fields than project and a disk's size":  !reflect.DeepEqual(f["required"], map[string]any{"": []any{"project"}, "disks[]": []any{"size"}}[path]),
	}
}

// allNamed tells whether the help names all choices, but for a spelling that is
// only known.
func allNamed(f formField, help string) bool {
	choices, _ := f["enum"].([]any)

	return !slices.ContainsFunc(choices, func(c any) bool { return c != "amd_turinv2" && !strings.Contains(help, fmt.Sprint(c)) })
}

// Fields stand in the order in which people fill them in: the required one
// first, what few need last.
func TestOrderOfTheForm(t *testing.T) {
	t.Parallel()

	schema := machineclass.Schema()
	at := -1

	for _, key := range []string{"project", "cpus", "memory", "boot_disk_size", "network_interfaces", "hostname", "trusted_cas"} {
		position := strings.Index(schema, fmt.Sprintf("%q: {", key))
		if position < at {
			t.Errorf("%s comes too early", key)
		}

		at = position
	}
}

// strictly resolves the schema with a library that, unlike Omni's, checks the
// schema's structure, its keywords and its default values too.
func strictly(t *testing.T) *strict.Resolved {
	t.Helper()

	var s strict.Schema
	if err := json.Unmarshal([]byte(machineclass.Schema()), &s); err != nil {
		t.Fatal(err)
	}

	resolved, err := s.Resolve(&strict.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}

	return resolved
}

// Invariant: the schema is not only what one library makes of it: a second one,
// written apart, takes and refuses the same classes, and a third knows every
// keyword in it.
func TestSchemaMeansTheSameToOtherLibraries(t *testing.T) {
	t.Parallel()

	var openAPI openapi3.Schema
	if err := json.Unmarshal([]byte(machineclass.Schema()), &openAPI); err != nil {
		t.Fatal(err)
	}

	if err := openAPI.Validate(context.Background(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Errorf("keywords: %v", err)
	}

	omnis, other := compiled(t), strictly(t)

	texts := []string{"project: a", "project: talos\nvcpus: 2\ndisk_size: 20", exampleClass(t)}
	for _, w := range wrongClasses() {
		texts = append(texts, "project: a\n"+w.text)
	}

	for _, text := range texts {
		var value any
		if yaml.Unmarshal([]byte(text), &value) != nil {
			continue
		}

		if one, two := validate(omnis, text), other.Validate(jsonValue(t, value)); (one == nil) != (two == nil) {
			t.Errorf("%q: %v, but %v", text, one, two)
		}
	}
}

// jsonValue is a value as JSON has it.
func jsonValue(t *testing.T, value any) (out any) {
	t.Helper()

	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}

	if err != nil {
		t.Fatal(err)
	}

	return out
}
