package machineclass

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Schema returns the JSON schema (draft 2020-12) of a class, for Omni's form
// and its check of classes.
//
// Omni's form shapes it: properties are shown in their order, with title and
// description; a number that is not required has exclusive bounds, because
// the form turns an empty one with inclusive bounds into NaN; the old keys are
// patternProperties, which are known but not shown; names have a pattern
// instead of a format, which drafts treat differently.
func Schema() string {
	root := objectSchema("Oxide machine", fields())

	old := object{}
	for _, f := range oldFields() {
		old = append(old, member{"^" + f.key + "$", fieldSchema(f)})
	}

	root = append(root, member{"patternProperties", old})

	var b bytes.Buffer

	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	if err := encoder.Encode(root); err != nil {
		panic(err) // only maps, texts and numbers, all from our own table
	}

	return b.String()
}

func objectSchema(title string, known []field) object {
	properties := object{}
	required := []string{}

	for _, f := range known {
		properties = append(properties, member{f.key, fieldSchema(f)})

		if f.required {
			required = append(required, f.key)
		}
	}

	o := object{{"type", "object"}, {"title", title}, {"properties", properties}, {"additionalProperties", false}}

	if len(required) > 0 {
		o = append(o, member{"required", required})
	}

	return o
}

func fieldSchema(f field) object {
	if f.kind == kindObject {
		return objectFieldSchema(f)
	}

	o := object{}

	for _, m := range []member{{"title", f.title}, {"description", f.describe()}} {
		if m.value != "" {
			o = append(o, m)
		}
	}

	if f.def != nil {
		o = append(o, member{"default", f.def})
	}

	switch f.kind {
	case kindText:
		o = append(o, textSchema(f)...)
	case kindEnum:
		o = append(o, member{"type", "string"}, member{"enum", slices.Concat(f.values, f.hidden)})
	case kindWhole:
		o = append(o, member{"type", "integer"}, member{"exclusiveMinimum", 0}, member{"exclusiveMaximum", f.max + 1})
	case kindFlag:
		o = append(o, member{"type", "boolean"})
	case kindList:
		o = append(o, member{"type", "array"}, member{"maxItems", f.max}, member{"items", fieldSchema(*f.entry)})
		if f.unique {
			o = append(o, member{"uniqueItems", true})
		}
	case kindObject:
	}

	return o
}

// textSchema takes an empty text for a field of the form that was emptied.
func textSchema(f field) object {
	pattern := f.form.pattern
	if f.key != "" && !f.required {
		pattern = "|" + pattern
	}

	o := object{{"type", "string"}, {"pattern", anchored(pattern)}}

	if f.form.not != "" {
		o = append(o, member{"not", object{{"pattern", anchored(f.form.not)}}})
	}

	if f.form.most > 0 {
		o = append(o, member{"maxLength", f.form.most})
	}

	return append(o, member{"x-pattern-message", f.form.message})
}

// objectFieldSchema is the schema of an object. That of a disk has a limit that
// depends on the disk's type.
func objectFieldSchema(f field) object {
	o := objectSchema(f.title, f.fields)

	if d := f.describe(); d != "" {
		o = append(o, member{"description", d})
	}

	if slices.ContainsFunc(f.fields, func(f field) bool { return slices.Contains(f.values, DiskLocal) }) {
		o = append(o,
			member{"if", object{
				{"properties", object{{"type", object{{"const", DiskLocal}}}}},
				{"required", []string{"type"}},
			}},
			member{"else", object{
				{"properties", object{{"size", object{{"type", "integer"}, {"exclusiveMaximum", maxDistributed + 1}}}}},
			}})
	}

	return o
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer

	for i, m := range o {
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])

		for j, part := range []any{m.key, m.value} {
			b.WriteString(strings.Repeat(":", j))

			encoder := json.NewEncoder(&b)
			encoder.SetEscapeHTML(false)

			if err := encoder.Encode(part); err != nil {
				return nil, err
			}
		}
	}

	if len(o) == 0 {
		b.WriteByte('{')
	}

	b.WriteByte('}')

	return b.Bytes(), nil
}
