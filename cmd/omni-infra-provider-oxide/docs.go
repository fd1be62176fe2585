package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
)

// newDocsCommand prints the pages that are made from the code; "make generate"
// calls it.
func newDocsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Print the pages that are made from the code", Args: noSubcommand, Hidden: true}

	page := func(name, short string, text func() string) {
		cmd.AddCommand(&cobra.Command{
			Use: name, Short: short, Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := fmt.Fprint(cmd.OutOrStdout(), text())

				return err
			},
		})
	}
	page("metrics", "The page on metrics", metrics.Reference)

	return cmd
}
