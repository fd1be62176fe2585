package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const outputText = "text"

func newVersionCommand() *cobra.Command {
	var output string

	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this build, and the versions of Omni, Talos and the Oxide API that it supports",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case outputText:
				_, err := fmt.Fprint(cmd.OutOrStdout(), version.Get())

				return err
			case outputJSON:
				return writeJSON(cmd.OutOrStdout(), version.Get())
			default:
				return fmt.Errorf("%w: --output %q is neither %s nor %s", errUsage, output, outputText, outputJSON)
			}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", outputText, "form of the answer: text or json")

	return cmd
}
