package rack

import (
	"encoding/json"
	"fmt"
)

// child reads a nested object; its errors must be taken over with adopt.
func (o *object) child(key string) *object {
	raw, ok := o.required(key)
	if !ok {
		return &object{err: o.err}
	}

	c := parseObject(joinPath(o.path, key), raw)
	o.adopt(c)

	return c
}

func (o *object) adopt(c *object) {
	if o.err == nil {
		o.err = c.err
	}
}

// list reads an array; absent gives nil, null is refused as it is no array.
func (o *object) list(key string) []json.RawMessage {
	raw, ok := o.field(key)
	if !ok {
		return nil
	}

	return o.listOf(key, raw)
}

func (o *object) listOf(key string, raw json.RawMessage) []json.RawMessage {
	if raw[0] != '[' {
		o.fail(key, "invalid type: %s, expected a sequence", kindOf(raw))

		return nil
	}

	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		o.fail(key, "%v", err)
	}

	return items
}

// objects reads an array of objects.
func (o *object) objects(key string) []*object {
	items := o.list(key)
	out := make([]*object, 0, len(items))

	for i, raw := range items {
		c := parseObject(fmt.Sprintf("%s[%d]", joinPath(o.path, key), i), raw)
		o.adopt(c)
		out = append(out, c)
	}

	return out
}

// namesOrIDs reads an array of selectors.
func (o *object) namesOrIDs(key string, items []json.RawMessage) []string {
	out := make([]string, 0, len(items))

	for i, raw := range items {
		at := fmt.Sprintf("%s[%d]", key, i)
		s := o.checked(at, o.textOf(at, raw), checkNameOrID)
		out = append(out, s)
	}

	return out
}
