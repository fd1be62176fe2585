package rack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// object reads a JSON object the way the rack's deserializer does: keys are
// case-sensitive, unknown keys are ignored however often they stand there,
// known ones may stand once, required keys must be there, null is no value of a
// required key, and numbers, strings and booleans are not converted into each
// other. The first violation is kept in err and makes all later reads return
// zero values.
type object struct {
	path   string
	fields map[string]json.RawMessage
	twice  map[string]bool // keys that stand there more than once
	err    error
}

// parseBody reads a request body that must be one JSON object.
func parseBody(body []byte) *object {
	return parseObject("", body)
}

func parseObject(path string, raw []byte) *object {
	o := &object{path: path}

	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		o.fail("", "EOF while parsing a value at line 1 column 0")
	case !utf8.Valid(raw):
		o.fail("", "invalid unicode code point")
	case !json.Valid(raw):
		o.fail("", "expected value at line 1 column 1")
	case raw[0] != '{':
		o.fail("", "invalid type: %s, expected struct", kindOf(raw))
	default:
		if err := o.split(raw); err != nil {
			o.fail("", "%v", err)
		}
	}

	return o
}

// split takes an object apart into its keys and their values.
func (o *object) split(raw []byte) error {
	o.fields, o.twice = map[string]json.RawMessage{}, map[string]bool{}

	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return err
	}

	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}

		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}

		name, _ := key.(string)
		if _, has := o.fields[name]; has {
			o.twice[name] = true
		}

		o.fields[name] = value
	}

	return nil
}

func (o *object) fail(key, format string, args ...any) {
	if o.err != nil {
		return
	}

	at := o.path
	if key != "" {
		at = joinPath(at, key)
	}

	if at != "" {
		at += ": "
	}

	o.err = badParse("unable to parse JSON body: %s%s", at, fmt.Sprintf(format, args...))
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}

	return path + "." + key
}

func kindOf(raw []byte) string {
	switch raw[0] {
	case '"':
		return "string"
	case '{':
		return "map"
	case '[':
		return "sequence"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	default:
		return "number"
	}
}

// field gives the raw value of a key; ok is false when it is absent.
func (o *object) field(key string) (json.RawMessage, bool) {
	if o.err != nil {
		return nil, false
	}

	if o.twice[key] {
		o.fail("", "duplicate field `%s`", key)

		return nil, false
	}

	raw, ok := o.fields[key]

	return raw, ok
}

// value gives a key's value, or nothing when it is absent or null.
func (o *object) value(key string) (json.RawMessage, bool) {
	raw, ok := o.field(key)
	if !ok || string(raw) == "null" {
		return nil, false
	}

	return raw, true
}

func (o *object) required(key string) (json.RawMessage, bool) {
	raw, ok := o.field(key)
	if !ok && o.err == nil {
		o.fail("", "missing field `%s`", key)
	}

	return raw, ok
}

func (o *object) textOf(key string, raw json.RawMessage) string {
	if raw[0] != '"' {
		o.fail(key, "invalid type: %s, expected a string", kindOf(raw))

		return ""
	}

	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		o.fail(key, "%v", err)
	}

	if strings.ContainsRune(s, utf8.RuneError) && !bytes.Contains(raw, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`)) {
		o.fail(key, "lone leading surrogate in hex escape") // which Go's decoder replaces
	}

	return s
}

// text is a required string.
func (o *object) text(key string) string {
	raw, ok := o.required(key)
	if !ok {
		return ""
	}

	return o.textOf(key, raw)
}

// textOr is an optional string; like the other defaulted fields it may be
// absent but not null.
func (o *object) textOr(key, def string) string {
	raw, ok := o.field(key)
	if !ok {
		return def
	}

	return o.textOf(key, raw)
}

// optionalText is a string that may be absent or null: nil.
func (o *object) optionalText(key string) *string {
	raw, ok := o.value(key)
	if !ok {
		return nil
	}

	s := o.textOf(key, raw)

	return &s
}

func (o *object) checked(key, s string, check func(string) error) string {
	if o.err != nil {
		return ""
	}

	if err := check(s); err != nil {
		o.fail(key, "%v", err)
	}

	return s
}

func (o *object) name(key string) string { return o.checked(key, o.text(key), checkName) }

func (o *object) nameOrID(key string) string { return o.checked(key, o.text(key), checkNameOrID) }

func (o *object) hostname(key string) string { return o.checked(key, o.text(key), checkHostname) }

func (o *object) optionalName(key string) string {
	s := o.optionalText(key)
	if s == nil {
		return ""
	}

	return o.checked(key, *s, checkName)
}

// id is a required UUID, in canonical form.
func (o *object) id(key string) string {
	s := o.text(key)
	if o.err != nil {
		return ""
	}

	id, err := uuid.Parse(s)
	if err != nil {
		o.fail(key, "UUID parsing failed: %v", err)

		return ""
	}

	return id.String()
}
