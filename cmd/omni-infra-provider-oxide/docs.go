package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/man"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const docsLong = `Prints a page of the documentation, in Markdown, or without a topic the list of
all pages. They are those of this version; links between them are to files that
stand beside each other in the repository.

Exits with 0, and with 2 when there is no such page.`

func newDocsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "docs [TOPIC]", Short: "Print the documentation", Long: docsLong,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%w: %s takes one topic; see --help", errUsage, cmd.CommandPath())
			}

			return nil
		},
		ValidArgs: docs.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listTopics(cmd.OutOrStdout())
			}

			page, err := docs.Page(args[0])
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}

			_, err = io.WriteString(cmd.OutOrStdout(), page)

			return err
		},
	}
	cmd.AddCommand(
		writing("man DIR", "Write the manual pages into a directory", manPages),
		writing("generate DIR", "Write the pages that are made from the code into a directory", generatedPages),
	)

	return cmd
}

func listTopics(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)

	for _, t := range docs.Topics() {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", t.Name, t.Summary)
	}

	return table.Flush()
}

// writing is a command for the Makefile, which writes files into a directory.
func writing(use, short string, files func(*cobra.Command) map[string]string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Hidden: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("%w: %s takes one directory; see --help", errUsage, cmd.CommandPath())
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // pages are for everybody
				return err
			}

			for name, text := range files(cmd.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil { //nolint:gosec // as above
					return err
				}
			}

			return nil
		},
	}
}

// generatedPages are the pages that say what the code knows, by file.
func generatedPages(root *cobra.Command) map[string]string {
	return map[string]string{
		"machine-class.md": machineclass.Reference(),
		"metrics.md":       metrics.Reference(),
		"options.md":       config.OptionsPage(),
		"commands.md":      man.CommandsPage(root),
	}
}

func manPages(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	for _, cmd := range man.Commands(root) {
		pages[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"] = man.Page(cmd, version.Get().Version)
	}

	return pages
}
