package rack

import (
	"math"
	"strconv"
)

// oneOf is a required string out of a fixed set.
func (o *object) oneOf(key string, values ...string) string {
	s := o.text(key)
	if o.err == nil {
		o.isOneOf(key, s, values)
	}

	return s
}

// optionalOneOf may be absent or null: "".
func (o *object) optionalOneOf(key string, values ...string) string {
	s := o.optionalText(key)
	if s == nil || o.err != nil {
		return ""
	}

	o.isOneOf(key, *s, values)

	return *s
}

func (o *object) isOneOf(key, s string, values []string) {
	for _, v := range values {
		if s == v {
			return
		}
	}

	o.fail(key, "unknown variant `%s`, expected one of %q", s, values)
}

// number is a required unsigned integer of at most max.
func (o *object) number(key string, limit uint64) uint64 {
	raw, ok := o.required(key)
	if !ok {
		return 0
	}

	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil || n > limit {
		o.fail(key, "invalid value: %s, expected an integer of at most %d", raw, limit)
	}

	return n
}

// bytes is a required byte count.
func (o *object) bytes(key string) int64 {
	return int64(o.number(key, math.MaxInt64))
}

// boolOr is a boolean that may be absent, but not null.
func (o *object) boolOr(key string, def bool) bool {
	raw, ok := o.field(key)
	if !ok {
		return def
	}

	switch string(raw) {
	case "true":
		return true
	case "false":
		return false
	}

	o.fail(key, "invalid type: %s, expected a boolean", kindOf(raw))

	return false
}
