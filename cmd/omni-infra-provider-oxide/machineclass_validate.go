package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// errWrongClass ends the process with 1: what is wrong has been printed.
var errWrongClass = errors.New("the machine class has mistakes")

const (
	outputTable = "table"
	outputJSON  = "json"
	// maxClassFile bounds what is read from a file or standard input.
	maxClassFile = 16 << 20
)

func newValidateCommand() *cobra.Command {
	output := outputTable

	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a machine class and print all its mistakes",
		Long: `Checks a machine class and prints all its mistakes, one a line.

FILE is what stands in providerdata, or a file for omnictl apply with machine
classes in it, in YAML or JSON; - is standard input. Whether the project and
what else the class names is there only the rack knows: that is not checked.

Exits with 0 when all is well, with 1 when there is a mistake, and with 2 when
the command line is wrong or the file can not be read.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: validate takes one file, or -; see --help", errUsage)
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != outputTable && output != outputJSON {
				return fmt.Errorf("%w: --output %q is neither %s nor %s", errUsage, output, outputTable, outputJSON)
			}

			text, err := readClassFile(args[0], cmd.InOrStdin())
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}

			return report(cmd.OutOrStdout(), output, machineclass.ValidateFile(text))
		},
	}

	cmd.Flags().StringVarP(&output, "output", "o", output, "form of the answer: table or json")

	return cmd
}

func readClassFile(name string, stdin io.Reader) (string, error) {
	source := stdin

	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}

		defer f.Close() //nolint:errcheck // only read

		source = f
	}

	text, err := io.ReadAll(io.LimitReader(source, maxClassFile+1))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}

	if len(text) > maxClassFile {
		return "", fmt.Errorf("%s is over the limit of %d bytes", name, maxClassFile)
	}

	return string(text), nil
}

// report prints what was found, and returns errWrongClass if that is a mistake.
func report(w io.Writer, output string, found []machineclass.Validated) error {
	valid := true
	for _, v := range found {
		valid = valid && len(v.Mistakes) == 0
	}

	write := reportTable
	if output == outputJSON {
		write = reportJSON
	}

	if err := write(w, valid, found); err != nil {
		return err
	}

	if !valid {
		return errWrongClass
	}

	return nil
}

func reportJSON(w io.Writer, valid bool, found []machineclass.Validated) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	return encoder.Encode(struct {
		Valid   bool                     `json:"valid"`
		Classes []machineclass.Validated `json:"classes"`
	}{valid, found})
}

func reportTable(w io.Writer, valid bool, found []machineclass.Validated) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)

	if !valid {
		_, _ = fmt.Fprintln(table, "CLASS\tFIELD\tMISTAKE") // the writer keeps its first error for Flush
	}

	for _, v := range found {
		for _, m := range v.Mistakes {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", orDash(v.Class), orDash(m.Field), m.Text)
		}
	}

	if valid {
		_, _ = fmt.Fprintf(table, "no mistakes (%d checked)\n", len(found))
	}

	return table.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}

	return s
}
