// Package man makes reference pages of a tree of commands: manual pages in roff
// with the man macros, and one page in Markdown.
//
// The root's own flags are the options that most commands take too: only the
// root's page has them, the others refer to it.
package man

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands returns root and all commands under it that are not hidden, each
// before those under it.
func Commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}

	for _, sub := range root.Commands() {
		// Cobra adds both to what is run, not to what one asks about.
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			all = append(all, Commands(sub)...)
		}
	}

	return all
}

// flags splits those of a command into its own ones and whether it takes the
// root's as well.
func flags(cmd *cobra.Command) (own []*pflag.Flag, roots bool) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden || f.Name == "help":
		case cmd != cmd.Root() && cmd.Root().Flags().Lookup(f.Name) != nil:
			roots = true
		default:
			own = append(own, f)
		}
	})

	return own, roots
}

// about is what is said of a command.
func about(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return strings.TrimSpace(cmd.Long)
	}

	return cmd.Short + "."
}

// name is how a flag is written, with what it takes.
func name(f *pflag.Flag) (text, usage string) {
	kind, usage := pflag.UnquoteUsage(f)
	text = "--" + f.Name

	if f.Shorthand != "" {
		text = "-" + f.Shorthand + ", " + text
	}

	if kind != "" {
		text += " " + kind
	}

	return text, usage
}

// preset tells the default, unless it is none.
func preset(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "[]", "0":
		return ""
	default:
		return f.DefValue
	}
}

// file is the name of a command's page without its section.
func file(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Page is the manual page of a command, of section 1.
func Page(cmd *cobra.Command, version string) string {
	var b strings.Builder

	fmt.Fprintf(&b, ".TH %q 1 \"\" %q \"User Commands\"\n", strings.ToUpper(file(cmd)), cmd.Root().Name()+" "+version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(file(cmd)), escape(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", escape(cmd.UseLine()))

	// Columns stay columns: texts of commands are set for a terminal.
	fmt.Fprintf(&b, ".nf\n%s\n.fi\n", escape(about(cmd)))

	own, roots := flags(cmd)
	if len(own) > 0 || roots {
		b.WriteString(".SH OPTIONS\n")
	}

	for _, f := range own {
		text, usage := name(f)
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", escape(text), escape(usage))

		if def := preset(f); def != "" {
			fmt.Fprintf(&b, "(default %s)\n", escape(def))
		}
	}

	if roots {
		fmt.Fprintf(&b, ".PP\nBeside these all options of\n.BR %s (1).\n", escape(cmd.Root().Name()))
	}

	var also []string

	for _, other := range Commands(cmd.Root()) {
		if other == cmd.Parent() || other.Parent() == cmd {
			also = append(also, fmt.Sprintf(".BR %s (1)", escape(file(other))))
		}
	}

	if len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, ",\n"))
	}

	return b.String()
}

// escape makes a text one that roff prints as it is.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")

	for i, line := range lines {
		// A line that begins so would be a request.
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}

	return strings.Join(lines, "\n")
}
