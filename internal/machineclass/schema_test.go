package machineclass_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// compiled compiles the schema with the library that Omni uses.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()

	document, err := jsonschema.UnmarshalJSON(strings.NewReader(machineclass.Schema()))
	if err != nil {
		t.Fatal(err)
	}

	compiler := jsonschema.NewCompiler()
	if err = compiler.AddResource("class.json", document); err != nil {
		t.Fatal(err)
	}

	schema, err := compiler.Compile("class.json")
	if err != nil {
		t.Fatal(err)
	}

	return schema
}

// notANumber is what Omni replaces by null before it validates.
var notANumber = regexp.MustCompile(`(?i)\.nan`)

// validate checks a class as Omni does: what YAML makes of it, not what JSON
// would, against the schema.
func validate(schema *jsonschema.Schema, text string) error {
	var value any
	if err := yaml.Unmarshal([]byte(notANumber.ReplaceAllString(text, "null")), &value); err != nil {
		return err
	}

	if value == nil {
		value = map[string]any{}
	}

	return schema.Validate(value)
}

// Invariant: schema and check do not drift. Omni's form accepts what the
// first step accepts, and refuses what it refuses, wherever a schema can say
// it; what two entries of a list must agree on it can not.
func TestSchemaAndParseAgree(t *testing.T) {
	t.Parallel()

	schema := compiled(t)

	list := func(n int, entry string) string { return "[" + strings.Repeat(entry+",", n) + "]" }

	names := func(n int, form string) string {
		entries := make([]string, n)
		for i := range entries {
			entries[i] = fmt.Sprintf(form, i)
		}

		return "[" + strings.Join(entries, ",") + "]"
	}

	for key, values := range map[string]map[string]bool{
		"project": {
			"a": true, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false, "A": false, "a-": false, "1a": false, "a--b": true,
			projectID: true, strings.ToUpper(projectID): true, "abcdef0123456789abcdef0123456789": false, "1": false, "true": false, "a.b": false,
		},
		"cpus":           {"1": true, "254": true, "255": false, "0": false, "-1": false, "1.5": false, "2.0": true, "'1'": false},
		"memory":         {"1": true, "1536": true, "1537": false, "0": false, "8589934592": false},
		"boot_disk_size": {"1": true, "1023": true, "1024": false, "0": false},
		"disks": {
			"[]": true, list(11, "{size: 1}"): true, list(12, "{size: 1}"): false, "[{}]": false, "[{type: local}]": false,
			"[{size: 1023}]": true, "[{size: 1024}]": false, "[{type: distributed, size: 1024}]": false, "[{size: 0}]": false,
			"[{type: local, size: 1024}]": true, "[{type: local, size: 10485760}]": true, "[{type: local, size: 10485761}]": false,
			"[{type: x, size: 1}]": false, "[{size: 1, x: 1}]": false, "{}": false,
		},
		"network_interfaces": {
			"[]": true, "[{}]": true, names(8, "{subnet_name: s%d}"): true, names(9, "{subnet_name: s%d}"): false,
			"[{ip_config: v4}]": true, "[{ip_config: v6}]": true, "[{ip_config: dual_stack}]": true, "[{ip_config: x}]": false,
			"[{vpc_name: " + projectID + "}]": false, "[{vpc_name: a}]": true, "[{subnet_name: A}]": false, "[{vpc: a}]": false,
		},
		"auto_restart_policy": {"never": true, "best_effort": true, "always": false},
		"cpu_platform":        {"amd_milan": true, "amd_turin": true, "amd_turin_v2": true, "amd_turinv2": true, "amd": false},
		"anti_affinity_groups": {
			"[]": true, names(16, "g%d"): true, names(17, "g%d"): false, "[a, a]": false, "[A]": false, "[" + projectID + "]": true,
		},
		"enable_jumbo_frames": {"true": true, "false": true, "yes": false, "1": false},
		"vcpus":               {"254": true, "255": false},
		"disk_size":           {"1023": true, "1024": false},
		"vpc":                 {"a": true, "A": false},
		"subnet":              {"a": true, "A": false},
		"cpu":                 {"1": false},
	} {
		for value, want := range values {
			text := key + ": " + value
			if key != "project" {
				text += "\nproject: talos"
			}

			if err := validate(schema, text); (err == nil) != want {
				t.Errorf("schema, %q: %v", text, err)
			}

			if _, err := machineclass.Parse(text); (err == nil) != want {
				t.Errorf("Parse, %q: %v", text, err)
			}
		}
	}
}

// described is the part of a schema that Omni's form reads.
type described struct {
	Title, Description         string
	Type                       string
	Default                    any
	Properties                 map[string]described
	PatternProperties          map[string]described
	Items                      *described
	AdditionalProperties       *bool
	Required                   []string
	Minimum, Maximum, MinItems *float64
	Schema                     string `json:"$schema"`
	Ref                        string `json:"$ref"`
	Format                     string
}

func decoded(t *testing.T) described {
	t.Helper()

	var d described
	if err := json.Unmarshal([]byte(machineclass.Schema()), &d); err != nil {
		t.Fatal(err)
	}

	return d
}

func TestSchemaHasTheFieldsOfTheType(t *testing.T) {
	t.Parallel()
	compareType(t, "class", decoded(t), reflect.TypeFor[machineclass.Class]())
}

func compareType(t *testing.T, path string, d described, goType reflect.Type) {
	t.Helper()

	if goType.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		goType = reflect.TypeFor[string]() // an address, or a network
	}

	switch goType.Kind() {
	case reflect.Struct:
		if len(d.Properties) != goType.NumField() || d.AdditionalProperties == nil || *d.AdditionalProperties {
			t.Errorf("%s: %d properties for %d fields, additional %v", path, len(d.Properties), goType.NumField(), d.AdditionalProperties)
		}

		for i := range goType.NumField() {
			f := goType.Field(i)

			p, known := d.Properties[f.Tag.Get("yaml")]
			if !known {
				t.Errorf("%s: no property for the field %s", path, f.Name)

				continue
			}

			compareType(t, path+"."+f.Name, p, f.Type)
		}
	case reflect.Slice:
		if d.Type != "array" || d.Items == nil {
			t.Fatalf("%s: %+v is no array", path, d)
		}

		compareType(t, path+"[]", *d.Items, goType.Elem())
	default:
		if want := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Bool: "boolean"}[goType.Kind()]; d.Type != want {
			t.Errorf("%s: type %q, want %q", path, d.Type, want)
		}
	}
}

func TestSchemaSuitsOmnisForm(t *testing.T) {
	t.Parallel()

	d := decoded(t)
	suits(t, "class", d)

	for key := range d.PatternProperties {
		if _, shown := d.Properties[strings.Trim(key, "^$")]; shown {
			t.Errorf("%s: an old key clutters the form", key)
		}
	}

	if !reflect.DeepEqual(d.Required, []string{"project"}) {
		t.Errorf("required: %v", d.Required)
	}
}

func suits(t *testing.T, path string, d described) {
	t.Helper()

	// A schema of another draft is read by other rules; one with a remote
	// reference does not compile in Omni; an inclusive bound of a number left
	// empty becomes NaN in the form.
	if d.Schema != "" || d.Ref != "" || d.Format != "" || d.Minimum != nil || d.Maximum != nil || d.MinItems != nil {
		t.Errorf("%s: %+v", path, d)
	}

	if d.Title == "" {
		t.Errorf("%s: no title", path)
	}

	for key, p := range d.Properties {
		if p.Description == "" || strings.Contains(p.Description, "\n") || !strings.HasSuffix(p.Description, ".") {
			t.Errorf("%s.%s: description %q", path, key, p.Description)
		}

		if p.Type == "integer" && !strings.Contains(p.Description, "GiB") && !strings.Contains(p.Description, "Number") {
			t.Errorf("%s.%s: no unit in %q", path, key, p.Description)
		}

		suits(t, path+"."+key, p)
	}

	if d.Items != nil {
		suits(t, path+"[]", *d.Items)
	}
}

func TestSchemaDefaultsAreThoseOfParse(t *testing.T) {
	t.Parallel()

	values := map[string]any{"project": "talos"}

	for key, p := range decoded(t).Properties {
		if p.Default != nil {
			values[key] = p.Default
		}
	}

	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}

	if err = validate(compiled(t), string(text)); err != nil {
		t.Error(err)
	}

	if got, err := machineclass.Parse(string(text)); err != nil || !equal(got, smallest()) {
		t.Errorf("%+v, %v", got, err)
	}
}
