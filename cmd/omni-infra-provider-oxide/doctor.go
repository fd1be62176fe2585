package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/doctor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

const doctorLong = `Looks for what keeps the daemon from its work, with the daemon's own options: the
configuration, proxies, clocks, the ways to Omni and the rack with names and
certificates, Omni's key, the provider, the versions of Omni and of the rack's
API, the token and what it may read and make, machine classes (--class FILE),
and the image factory with its schematics.

The first line says what is wrong and what to do, the others what was looked at,
in the order in which each check builds on those before it. It changes nothing,
and can run beside the daemon.

Exits with 0 when nothing is wrong, with 1 when something is, and with 2 when
the command line or the configuration is wrong.`

// errUnwell ends the process with 1: what is wrong has been printed.
var errUnwell = errors.New("something is wrong")

type doctorCommand struct {
	loader   *config.Loader
	output   string
	class    string
	patience time.Duration
}

func newDoctorCommand() *cobra.Command {
	d := &doctorCommand{}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find out why the daemon can not do its work", Long: doctorLong, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	d.loader = config.Register(cmd.Flags())
	cmd.Flags().StringVarP(&d.output, "output", "o", outputTable, "form of the answer: table or json")
	cmd.Flags().StringVar(&d.class, "class", "", "file with machine classes to check against the rack, or - for standard input")
	cmd.Flags().DurationVar(&d.patience, "patience", 10*time.Second, "how long one check may take")

	return cmd
}

func (d *doctorCommand) run(cmd *cobra.Command) error {
	switch {
	case d.output != outputTable && d.output != outputJSON:
		return fmt.Errorf("%w: --output %q is neither %s nor %s", errUsage, d.output, outputTable, outputJSON)
	case d.patience <= 0:
		return fmt.Errorf("%w: --patience %s is not above 0", errUsage, d.patience)
	}

	examined, err := d.prepare(cmd)
	if err != nil {
		return err
	}

	if examined.Rack != nil {
		defer examined.Rack.Close()
	}

	report := doctor.Examine(cmd.Context(), examined)

	if d.output == outputJSON {
		err = writeJSON(cmd.OutOrStdout(), report)
	} else {
		err = tellFindings(cmd.OutOrStdout(), report)
	}

	switch {
	case err != nil:
		return err
	case len(examined.Mistakes) > 0:
		return errWrongConfig
	case !report.Well:
		return errUnwell
	default:
		return nil
	}
}

// errWrongConfig ends the process with 2: the mistakes have been printed.
var errWrongConfig = errors.New("the configuration has mistakes")

func (d *doctorCommand) prepare(cmd *cobra.Command) (doctor.Config, error) {
	out := doctor.Config{Patience: d.patience, Network: reach.New()}

	if d.class != "" {
		text, err := readClassFile(d.class, cmd.InOrStdin())
		if err != nil {
			return out, fmt.Errorf("%w: %w", errUsage, err)
		}

		out.Classes = text
	}

	cfg, err := d.loader.Load(os.LookupEnv)
	if m, ok := errors.AsType[config.Mistakes](err); ok {
		out.Mistakes = m

		return out, nil
	}

	if err != nil {
		return out, err
	}

	if err := provider.Bind(cfg.Provider.ID); err != nil {
		return out, err
	}

	ways, err := newWays(cfg)
	if err != nil {
		return out, err
	}

	out.Config, out.Omni = cfg, ways.omni

	access, err := readAccess(&cfg)
	if err != nil {
		return out, err
	}

	out.Rack, err = ways.rack(cfg, access)

	return out, err
}

// tellFindings prints a report for people: first what is wrong.
func tellFindings(w io.Writer, r *doctor.Report) error {
	first := "Nothing is wrong."
	if f := r.First(); f != nil {
		first = withMend(f)
	}

	var b strings.Builder

	fmt.Fprintf(&b, "%s\n\n", first)

	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "CHECK\tSTATE\tFINDING")

	for _, f := range r.Findings {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", f.Check, f.State, withMend(&f))
	}

	_ = t.Flush()

	_, err := io.WriteString(w, b.String())

	return err
}

func withMend(f *doctor.Finding) string {
	if f.Mend == "" {
		return f.Text
	}

	return f.Text + ": " + f.Mend
}
