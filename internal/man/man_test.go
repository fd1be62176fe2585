package man_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/man"
)

func tree() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Does things", Long: "Does things.\n.with a dot\n'and a quote\\", Run: func(*cobra.Command, []string) {}}
	root.Flags().String("host", "", "`url` of the host")

	sub := &cobra.Command{Use: "sub FILE", Short: "Does one", Run: func(*cobra.Command, []string) {}}
	sub.Flags().String("host", "", "`url` of the host")
	sub.Flags().StringP("output", "o", "table", "form of the answer")
	sub.Flags().Bool("secret-one", false, "not shown")
	_ = sub.Flags().MarkHidden("secret-one")

	hidden := &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}}
	root.AddCommand(sub, hidden)

	return root
}

// Invariant: a page has the command's own flags, and roff takes no text for a
// request of its own.
func TestAPageSaysWhatTheCommandDoes(t *testing.T) {
	t.Parallel()

	root := tree()
	sub := root.Commands()[len(root.Commands())-1]

	if sub.Name() != "sub" {
		t.Fatalf("%s is not sub", sub.Name())
	}

	for _, c := range []struct {
		page       string
		want, less []string
	}{
		{man.Page(root, "v1"), []string{`.TH "TOOL" 1 "" "tool v1"`, "\n\\&.with a dot\n\\&'and a quote\\e\n", `\-\-host url`, ".BR tool\\-sub (1)"}, []string{"hidden"}},
		{man.Page(sub, "v1"), []string{`tool\-sub \- Does one`, `\-o, \-\-output string`, "(default table)", "all options of\n.BR tool (1)"}, []string{"secret", `\-\-host`}},
		{
			man.CommandsPage(root),
			[]string{"## tool\n", "## sub\n", "tool sub FILE", "| `-o, --output string` | `table` | form of the answer |"},
			[]string{"secret", "hidden", "--host"},
		},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.page, want) {
				t.Errorf("there is no %q in:\n%s", want, c.page)
			}
		}

		for _, less := range c.less {
			if strings.Contains(c.page, less) {
				t.Errorf("there is %q in:\n%s", less, c.page)
			}
		}
	}
}
