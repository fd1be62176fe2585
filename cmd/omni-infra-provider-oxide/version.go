package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build and of what it speaks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), version.Get())

			return err
		},
	}
}
