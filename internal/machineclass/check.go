package machineclass

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// shownValue is how much of a wrong value is shown.
const shownValue = 40

var uuid = regexp.MustCompile(`^` + uuidPattern + `$`)

// checker holds a document against the table of fields and collects what is
// wrong with it.
type checker struct {
	mistakes Mistakes
	seen     map[string]bool // keys of the class that have a value
	wrong    map[string]bool // keys of the class with a mistake in them
}

// add notes a mistake of the value at the path, such as "disks[0].size".
func (c *checker) add(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}

	c.mistakes = append(c.mistakes, text)

	if c.wrong == nil {
		c.wrong = map[string]bool{}
	}

	c.wrong[topKey(path)] = true
}

func topKey(path string) string {
	if end := strings.IndexAny(path, ".["); end >= 0 {
		return path[:end]
	}

	return path
}

func (c *checker) object(path string, known []field, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		c.add(path, "is %s, must be keys with values", describe(node))

		return
	}

	given := map[string]bool{}
	valued := map[string]bool{}

	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := resolve(node.Content[i]).Value, resolve(node.Content[i+1])
		at := join(path, key)

		position := slices.IndexFunc(known, func(f field) bool { return f.key == key })

		switch {
		case position < 0:
			c.add(join(path, show(key)), "unknown key, the nearest known is %s", nearest(key, known))
		case given[key]:
			c.add(at, "is given twice")
		case !null(value): // a key without a value is a field left empty
			valued[key] = true

			c.value(at, known[position], value)
		}

		given[key] = true
	}

	for _, f := range known {
		if f.required && !valued[f.key] {
			c.add(join(path, f.key), "is required")
		}
	}

	if path == "" {
		c.seen = valued
	}
}

func (c *checker) value(path string, f field, node *yaml.Node) {
	switch f.kind {
	case kindObject:
		c.object(path, f.fields, node)
	case kindList:
		c.list(path, f, node)
	case kindWhole:
		c.whole(path, f, node)
	case kindFlag:
		if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!bool" {
			c.add(path, "%s, must be true or false", wrongType(node))
		}
	case kindName, kindNameOrID, kindEnum:
		c.text(path, f, node)
	}
}

func (c *checker) text(path string, f field, node *yaml.Node) {
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" {
		c.add(path, "%s, must be text", wrongType(node))

		return
	}

	switch v := node.Value; {
	case f.kind == kindEnum && !slices.Contains(f.values, v) && !slices.Contains(f.hidden, v):
		c.add(path, "%s is not one of %s", quote(v), strings.Join(f.values, ", "))
	case f.kind == kindName && !naming.Legal(v):
		c.add(path, "%s %s", quote(v), nameMessage)
	case f.kind == kindNameOrID && !naming.Legal(v) && !uuid.MatchString(v):
		c.add(path, "%s %s", quote(v), nameOrIDMessage)
	}
}

func (c *checker) list(path string, f field, node *yaml.Node) {
	if node.Kind != yaml.SequenceNode {
		c.add(path, "%s, must be a list", wrongType(node))

		return
	}

	if n := len(node.Content); n > f.max {
		c.add(path, "%d entries are over the limit of %d%s", n, f.max, f.limit)
	}

	first := map[string]int{}

	for i, entry := range node.Content {
		entry = resolve(entry)
		at := fmt.Sprintf("%s[%d]", path, i)

		if null(entry) {
			c.add(at, "is empty")

			continue
		}

		c.value(at, *f.entry, entry)

		if earlier, twice := first[entry.Value]; twice && f.unique {
			c.add(at, "%s is already in %s[%d]", quote(entry.Value), path, earlier)
		} else {
			first[entry.Value] = i
		}
	}
}

func (c *checker) whole(path string, f field, node *yaml.Node) {
	want := "a whole number"
	if f.unit != "" {
		want += " of " + f.unit
	}

	n, number := wholeNumber(node)

	switch {
	case node.Kind != yaml.ScalarNode || !number && node.ShortTag() != "!!float":
		c.add(path, "%s, must be %s", wrongType(node), want)
	case !number:
		c.add(path, "%s is not %s", show(node.Value), want)
	case n < 1:
		c.add(path, "%s is under the least of %s", show(node.Value), amount(1, f.unit))
	case n > int64(f.max):
		c.add(path, "%s", overLimit(n, show(node.Value), amount(f.max, f.unit), f.unit))
	}
}

// overLimit says so, and what was meant if the value looks like bytes.
func overLimit(n int64, value, limit, unit string) string {
	text := value + " is over the limit of " + limit

	if unit == gib && n >= GiB && n%GiB == 0 {
		text += fmt.Sprintf(" (sizes are in GiB, not bytes: %d)", n/GiB)
	}

	return text
}

func amount(n int, unit string) string { return strings.TrimSpace(strconv.Itoa(n) + " " + unit) }

// wholeNumber reads a whole number, however it is written (16, 0x10, 16.0);
// one that does not fit becomes the largest, or the least.
func wholeNumber(node *yaml.Node) (int64, bool) {
	switch node.ShortTag() {
	case "!!int":
		var n int64
		if node.Decode(&n) == nil {
			return n, true
		}
	case "!!float":
	default:
		return 0, false
	}

	var f float64
	if node.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) || f != math.Trunc(f) {
		return 0, false
	}

	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64, true
	case f <= math.MinInt64:
		return math.MinInt64, true
	default:
		return int64(f), true
	}
}

// resolve follows a YAML alias to what it stands for.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}

	return node
}

func null(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

func join(path, key string) string {
	if path == "" {
		return key
	}

	return path + "." + key
}
