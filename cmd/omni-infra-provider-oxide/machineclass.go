package main

import (
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

func newMachineClassCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "machine-class",
		Short: "Help with machine classes: schema, example, check, plan and reference",
		Long: `Help with machine classes. None of it but plan needs Omni or a rack.

Exits with 0 when all is well, with 1 when a class has mistakes, and with 2
when the command line is wrong or a file can not be read.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: unknown command %q; see --help", errUsage, args[0])
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	cmd.AddCommand(
		printing("schema", "Print the JSON schema that Omni shows as a form and checks classes against", machineclass.Schema),
		printing("reference", "Print the page on all fields of a class, in Markdown", machineclass.Reference),
		newExampleCommand(),
		newValidateCommand(),
		newPlanCommand(),
	)

	return cmd
}

// printing is a command without arguments that prints a text.
func printing(use, short string, text func() string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), text())

			return err
		},
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %s takes no arguments; see --help", errUsage, cmd.CommandPath())
	}

	return nil
}

// plainID is an ID of Omni that YAML takes for a text as it stands.
var plainID = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,254}$`)

func newExampleCommand() *cobra.Command {
	var name, providerID string

	cmd := &cobra.Command{
		Use:   "example",
		Short: "Print a machine class with all fields, ready for omnictl apply",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, id := range []string{name, providerID} {
				if !plainID.MatchString(id) {
					return fmt.Errorf("%w: %q is no ID: a letter, then letters, digits, ., _ and -", errUsage, id)
				}
			}

			_, err := io.WriteString(cmd.OutOrStdout(), machineclass.Example(name, providerID))

			return err
		},
	}

	cmd.Flags().StringVar(&name, "name", "oxide", "name of the machine class")
	cmd.Flags().StringVar(&providerID, "provider-id", "oxide", "ID of the infrastructure provider that makes its machines")

	return cmd
}
