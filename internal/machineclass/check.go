package machineclass

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// shownValue is how much of a wrong value is shown.
const shownValue = 40

// checker holds a document against the table of fields and collects what is
// wrong with it.
type checker struct {
	mistakes Mistakes
	seen     map[string]bool // keys of the class that have a value
	wrong    map[string]bool // keys of the class with a mistake in them
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
		case !leftEmpty(known[position], value):
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
	case kindText, kindEnum:
		c.text(path, f, node)
	}
}

func (c *checker) text(path string, f field, node *yaml.Node) {
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" {
		c.add(path, "%s, must be text", wrongType(node))

		return
	}

	v := node.Value

	if f.kind == kindEnum {
		if !slices.Contains(f.values, v) && !slices.Contains(f.hidden, v) {
			c.add(path, "%s is not one of %s", quote(v), strings.Join(f.values, ", "))
		}

		return
	}

	switch wrong := f.form.wrong(v); {
	case wrong == "":
	case f.form.hide:
		c.add(path, "%s", wrong)
	default:
		c.add(path, "%s %s", quote(v), wrong)
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

		if null(entry) || entry.Kind == yaml.ScalarNode && entry.Value == "" {
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
		c.add(path, "%s, must be %s%s", wrongType(node), want, withoutUnit(node, f))
	case !number:
		c.add(path, "%s is not %s", show(node.Value), want)
	case n < 1:
		c.add(path, "%s is under the least of %s", show(node.Value), amount(1, f.unit))
	case n > int64(f.max):
		c.add(path, "%s", overLimit(n, show(node.Value), amount(f.max, f.unit), f))
	}
}

// overLimit says so, and what was meant if the value looks like bytes or MiB.
func overLimit(n int64, value, limit string, f field) string {
	text := value + " is over the limit of " + limit

	if f.unit != gib {
		return text
	}

	if meant := n / GiB; n%GiB == 0 && meant >= 1 && meant <= int64(f.max) {
		return text + fmt.Sprintf(" (sizes are in GiB, not bytes: %d)", meant)
	}

	// One MiB too many may as well be one GiB too many.
	if meant := n >> 10; n%(1<<10) == 0 && meant > 1 && meant <= int64(f.max) {
		return text + fmt.Sprintf(" (sizes are in GiB; if MiB were meant: %d)", meant)
	}

	return text
}

// withUnit is a size with its unit, which people are used to write.
var withUnit = regexp.MustCompile(`^([0-9]{1,8}) ?(?i:g|gb|gi|gib)$`)

// withoutUnit says how a size that was written with its unit is written here.
func withoutUnit(node *yaml.Node, f field) string {
	if size := withUnit.FindStringSubmatch(node.Value); f.unit == gib && node.Kind == yaml.ScalarNode && size != nil {
		return ": " + size[1]
	}

	return ""
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

// leftEmpty tells whether a key has no value: it stands for a field of the form
// that was left empty, or emptied.
func leftEmpty(f field, node *yaml.Node) bool {
	return null(node) || f.kind == kindText && node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str" && node.Value == ""
}

func null(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

func join(path, key string) string {
	if path == "" {
		return key
	}

	return path + "." + key
}
