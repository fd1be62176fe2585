package machineclass

import (
	"fmt"
	"strings"
)

// exampleIndent is where the class stands in the resource.
const exampleIndent = "      "

// Example is a machine class for omnictl apply: a resource of Omni with the name,
// for the provider with the ID, with every field of a class explained. Fields
// that have a default stand there with it, all others as comments.
func Example(name, providerID string) string {
	var b strings.Builder

	fmt.Fprintf(&b, `# A machine class with all fields: omnictl apply -f FILE
# The provider must have run once before, so that Omni knows its schema.
metadata:
  namespace: default
  type: MachineClasses.omni.sidero.dev
  id: %s
spec:
  autoprovision:
    providerid: %s # the provider's --provider-id
    providerdata: |
      # Only the project is required; sizes are whole GiB.
`, name, providerID)

	for _, f := range fields() {
		fmt.Fprintf(&b, "\n%s# %s: %s\n", exampleIndent, f.title, f.describe())
		exampleEntries(&b, f)
		fmt.Fprintf(&b, "%s%s\n", exampleIndent, exampleLine(f))
	}

	return b.String()
}

// exampleLine gives the field its default, or as a comment its example.
func exampleLine(f field) string {
	switch {
	case f.required:
		return f.key + ": " + f.example
	case f.def != nil:
		return fmt.Sprintf("%s: %v", f.key, f.def)
	default:
		return "# " + f.key + ": " + f.example
	}
}

// exampleEntries explains the keys of an object or of a list's entries.
func exampleEntries(b *strings.Builder, f field) {
	inner := f.fields
	if f.entry != nil {
		inner = f.entry.fields
	}

	for _, g := range inner {
		fmt.Fprintf(b, "%s#   %s: %s\n", exampleIndent, g.key, g.describe())
	}
}
