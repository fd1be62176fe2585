package man

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// CommandsPage is the page on all commands, in Markdown.
func CommandsPage(root *cobra.Command) string {
	var b strings.Builder

	b.WriteString(`# Commands

<!-- Made by "make generate" from the commands. -->

Beside the flags named here the commands take the daemon's [options](options.md), where that is said. ` + "`--help`" + ` of each
and the manual pages (` + "`make man`" + `) say the same.
`)

	for _, cmd := range Commands(root) {
		heading := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n\n```text\n%s\n```\n", heading, cmd.UseLine(), about(cmd))

		own, roots := flags(cmd)

		switch {
		case cmd == root:
			b.WriteString("\nIts flags are the [options](options.md).\n")

			continue
		case roots:
			b.WriteString("\nIt takes the daemon's [options](options.md).\n")
		}

		if len(own) > 0 {
			b.WriteString("\n| Flag | Default | Meaning |\n|---|---|---|\n")
		}

		for _, f := range own {
			text, usage := name(f)
			def := preset(f)

			if def != "" {
				def = "`" + def + "`"
			}

			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", text, def, strings.ReplaceAll(usage, "|", `\|`))
		}
	}

	return b.String()
}
