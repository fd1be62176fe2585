package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

const orphansLong = `Shows, or deletes, what this provider has made in the rack for machine requests
that are no longer in Omni: instances, disks, addresses, anti-affinity groups,
and scratch of uploads that nobody works with any more.

A running daemon removes them by itself after a grace (--janitor). These
commands are for looking, and for deciding where the daemon waits for a person:
when more than two instances and more than a tenth of them are orphans, or when
Omni lists no request at all. They take the daemon's options and can run beside
it. Only what bears this provider's mark is ever shown or touched, and never an
instance whose machine is connected in Omni.

Exits with 0 when all is well, with 1 when something failed or is still there,
with 2 when the command line or the configuration is wrong, and with 3 when it
refused and did nothing.`

func newOrphansCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "orphans", Short: "Objects in the rack whose machine request is gone: list them, delete them",
		Long: orphansLong, Args: noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newOrphansListCommand(), newOrphansDeleteCommand())

	return cmd
}

func noSubcommand(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: unknown command %q; see --help", errUsage, args[0])
	}

	return nil
}

// finder is what both commands take a look with.
type finder struct {
	loader   *config.Loader
	projects []string
	output   string
	timeout  time.Duration
}

func (f *finder) register(cmd *cobra.Command) {
	f.loader = config.Register(cmd.Flags())

	cmd.Flags().StringSliceVar(&f.projects, "project", nil,
		"also look in this project; needed only for a token that may not list the silo's projects")
	cmd.Flags().StringVarP(&f.output, "output", "o", outputTable, "form of the answer: table or json")
	cmd.Flags().DurationVar(&f.timeout, "timeout", f.timeout, "give up after this time")
}

// with takes a look and hands it on.
func (f *finder) with(cmd *cobra.Command, use func(context.Context, *janitor.Janitor, *janitor.Report) error) error {
	if f.output != outputTable && f.output != outputJSON {
		return fmt.Errorf("%w: --output %q is neither %s nor %s", errUsage, f.output, outputTable, outputJSON)
	}

	cfg, err := f.loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}

	logger, err := newLogger(cfg.Log)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.timeout, fmt.Errorf("gave up after %s", f.timeout))
	defer cancel()

	ways, err := newWays(cfg)
	if err != nil {
		return err
	}

	access, err := readAccess(&cfg)
	if err != nil {
		return err
	}

	silo, err := ways.rack(cfg, access)
	if err != nil {
		return err
	}

	defer silo.Close()

	if err := provider.Bind(cfg.Provider.ID); err != nil {
		return err
	}

	omni, err := provider.Connect(ctx, ways.omni, cfg.Omni.Key.Reveal())
	if err != nil {
		return err
	}

	defer omni.Close()

	hand, err := omni.Janitor(ctx, provider.JanitorOptions{
		Rack: silo, Settle: cfg.SettleTime, MaxCreates: cfg.MaxCreates, Projects: f.projects, Logger: logger,
	})
	if err != nil {
		return err
	}

	found, err := hand.Find(ctx)
	if err != nil {
		return fmt.Errorf("looking for orphans: %w", err)
	}

	janitor.SortOrphans(found.Orphans)

	return use(ctx, hand, found)
}

func newOrphansListCommand() *cobra.Command {
	f := &finder{timeout: 5 * time.Minute}
	cmd := &cobra.Command{
		Use: "list", Short: "List them, with the reason for each", Long: orphansLong, Args: noArguments,
	}
	f.register(cmd)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return f.with(cmd, func(_ context.Context, _ *janitor.Janitor, r *janitor.Report) error {
			if f.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}

			return tell(cmd.OutOrStdout(), r)
		})
	}

	return cmd
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")

	return enc.Encode(v)
}

// tell prints a report for people.
func tell(w io.Writer, r *janitor.Report) error {
	if len(r.Orphans) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "KIND\tNAME\tID\tPROJECT\tSTATE\tREASON")

		for _, o := range r.Orphans {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", o.Kind, o.Name, o.ID, o.Project, o.State, o.Reason)
		}

		if err := t.Flush(); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintln(w, "No orphans."); err != nil {
		return err
	}

	for _, line := range notes(r) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}

	return nil
}

// notes are what a person should know about a report.
func notes(r *janitor.Report) []string {
	var lines []string

	if r.Brake != "" {
		lines = append(lines, "Brake: "+r.Brake)
	}

	for _, o := range r.Connected {
		lines = append(lines, fmt.Sprintf("No orphan: instance %s (%s): %s", o.Name, o.ID, o.Reason))
	}

	for _, u := range r.Unread {
		lines = append(lines, "Not looked at: "+u)
	}

	if r.Partial {
		lines = append(lines, "The token may not list the silo's projects: only those that Omni or --project names were looked at.")
	}

	return lines
}

// errRefused marks that nothing was done, on purpose.
var errRefused = errors.New("nothing was done")
