package machineclass

import (
	"fmt"
	"strings"
)

// Reference is the page for users, in Markdown, on all fields of a class.
func Reference() string {
	var b strings.Builder

	b.WriteString(`# Machine classes

<!-- Made by "make generate" from internal/machineclass. -->

What stands in ` + "`spec.autoprovision.providerdata`" + ` of a machine class in Omni, as YAML. The smallest useful class is
` + "`project: NAME`" + `. Sizes are whole GiB. A class that is wrong is refused before anything is made, with all its mistakes;
` + "`omni-infra-provider-oxide machine-class validate FILE`" + ` tells them beforehand, and ` + "`machine-class example`" + ` prints a class
with all fields. What a class becomes later changes new machines only.

| Field | Type | Default | Meaning |
|---|---|---|---|
`)

	for _, f := range fields() {
		f.row(&b)
	}

	for _, f := range fields() {
		f.section(&b)
	}

	b.WriteString(`
## Classes of the published provider

They are accepted as they are and give the same machines: the keys above have the names and defaults of its releases from
v0.4.0 on, ` + "`amd_turinv2`" + ` is taken for ` + "`amd_turin_v2`" + `, and these keys of its releases up to v0.3.0 stay known, though no form
shows them:

| Old key | Today |
|---|---|
| ` + "`vcpus`" + ` | ` + "`cpus`" + ` |
| ` + "`disk_size`" + ` | ` + "`boot_disk_size`" + ` |
| ` + "`vpc`, `subnet`" + ` | ` + "`vpc_name` and `subnet_name` of one entry of `network_interfaces`" + ` |

` + fmt.Sprintf("A class with one of them has the defaults of that time: `cpus` %d, `memory` %d.", oldDefaultCPUs, oldDefaultMemory) + `
An old key beside the one that took its place is refused, and so is any key that is not named here.
`)

	return b.String()
}

// row is the field's line of a table.
func (f field) row(b *strings.Builder) {
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.key, f.typeName(), f.defaultCell(), f.meaning())
}

func (f field) defaultCell() string {
	switch {
	case f.required:
		return "required"
	case f.def != nil:
		return "`" + f.without() + "`"
	default:
		return orDefault(f.without(), "none")
	}
}

func (f field) meaning() string {
	text, _, _ := strings.Cut(f.describe(), ". Default: ")
	text = strings.TrimSuffix(strings.TrimSuffix(text, " "+pendingText), ".")

	if f.pending {
		return text + " (not in this version yet)"
	}

	return text
}

func (f field) typeName() string {
	switch f.kind {
	case kindEnum:
		return "`" + strings.Join(f.values, "`, `") + "`"
	case kindWhole:
		return strings.TrimSpace("whole number " + map[bool]string{true: "of " + f.unit}[f.unit != ""])
	case kindFlag:
		return "`true`, `false`"
	case kindList:
		if f.entry.kind == kindObject {
			return "list of objects"
		}

		return "list of texts"
	case kindObject:
		return "object"
	default:
		return "text"
	}
}

// section is what the table has no room for: the keys of an object, the form of
// a text, notes and an example.
func (f field) section(b *strings.Builder) {
	inner, form := f.fields, f.form

	if f.entry != nil {
		inner, form = f.entry.fields, f.entry.form
	}

	if len(inner) == 0 && f.note == "" && (form == nil || form == nameOrIDForm) {
		return
	}

	fmt.Fprintf(b, "\n## %s\n\n`%s`: %s\n", f.title, f.key, f.describe())

	if f.note != "" {
		fmt.Fprintf(b, "%s\n", f.note)
	}

	if form != nil {
		fmt.Fprintf(b, "\nA value %s.\n", form.message)
	}

	if len(inner) > 0 {
		b.WriteString("\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n")
	}

	for _, g := range inner {
		g.row(b)
	}

	for _, g := range inner {
		if g.note != "" {
			fmt.Fprintf(b, "\n`%s`: %s\n", g.key, g.note)
		}
	}

	if f.example != "" {
		fmt.Fprintf(b, "\n```yaml\n%s: %s\n```\n", f.key, f.example)
	}
}
