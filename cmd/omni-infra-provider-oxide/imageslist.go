package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lifetime"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

const imagesListLong = `Shows the Talos images of this provider in the rack: where each is, what uses it,
when it was last used, and why it is kept; and the uploads under way in any
process, as of their last sign of life, ten seconds ago at most while all is well.

Images that others made are not shown. Neither the rack nor Omni is changed.`

const imagesPruneLong = `Removes the images of this provider that nothing uses and nothing keeps, as the
daemon does by itself: --image-keep, --image-keep-newest and --image-prune-silo
say what is kept. Without --yes it only shows what would be removed.

An image that a disk, a plan, a request or an upload refers to always stays, and
so does every one that others made. Right before each removal all of that is
looked at again. It can run beside the daemon; a request that comes in between
finds the image gone and has it brought again.

Exits with 0 when all is well, with 1 when something failed or is still there,
and with 2 when the command line or the configuration is wrong.`

// keepImages is what the options say.
func keepImages(cfg config.Config) lifetime.Keep {
	keep := lifetime.Keep{For: cfg.Images.Keep, Newest: cfg.Images.Newest, Silo: cfg.Images.PruneSilo}
	if keep.For == 0 {
		keep.For = lifetime.Forever
	}

	return keep
}

// imageLook is what both commands look at the images with.
type imageLook struct {
	loader   *config.Loader
	projects []string
	output   string
	timeout  time.Duration
	// unused overrides the time to keep, if it is not negative.
	unused time.Duration
}

func (l *imageLook) register(cmd *cobra.Command) {
	l.loader = config.Register(cmd.Flags())
	l.unused = -1

	cmd.Flags().StringSliceVar(&l.projects, "project", nil,
		"also look in this project; needed only for a token that may not list the silo's projects")
	cmd.Flags().StringVarP(&l.output, "output", "o", outputTable, "form of the answer: table or json")
	cmd.Flags().DurationVar(&l.timeout, "timeout", 5*time.Minute, "give up after this time")
}

// with takes a look and hands it on.
func (l *imageLook) with(cmd *cobra.Command, use func(context.Context, *lifetime.Lifetime, *lifetime.Report) error) error {
	if l.output != outputTable && l.output != outputJSON {
		return fmt.Errorf("%w: --output %q is neither %s nor %s", errUsage, l.output, outputTable, outputJSON)
	}

	cfg, err := l.loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}

	keep := keepImages(cfg)
	if l.unused >= 0 {
		keep.For = l.unused
	}

	logger, err := newLogger(cfg.Log)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(cmd.Context(), l.timeout, fmt.Errorf("gave up after %s", l.timeout))
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

	images, err := omni.Lifetime(ctx, provider.LifetimeOptions{Rack: silo, Projects: l.projects, Keep: keep, Logger: logger})
	if err != nil {
		return err
	}

	found, err := images.Find(ctx)
	if err != nil {
		return fmt.Errorf("looking at the images: %w", err)
	}

	return use(ctx, images, found)
}

func newImagesListCommand() *cobra.Command {
	l := &imageLook{}
	cmd := &cobra.Command{
		Use: "list", Short: "List our images, what uses them, and the uploads under way", Long: imagesListLong, Args: noArguments,
	}
	l.register(cmd)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return l.with(cmd, func(_ context.Context, _ *lifetime.Lifetime, r *lifetime.Report) error {
			if l.output == outputJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}

			return tellImages(cmd.OutOrStdout(), r, time.Now())
		})
	}

	return cmd
}

func newImagesPruneCommand() *cobra.Command {
	var (
		l   = &imageLook{}
		yes bool
	)

	cmd := &cobra.Command{
		Use: "prune", Short: "Show, or with --yes remove, our images that nothing uses", Long: imagesPruneLong, Args: noArguments,
	}
	l.register(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "remove them")
	cmd.Flags().DurationVar(&l.unused, "unused-for", l.unused, "instead of --image-keep; 0 for whatever nothing uses now")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("unused-for") && l.unused < 0 {
			return fmt.Errorf("%w: --unused-for %s is less than 0", errUsage, l.unused)
		}

		return l.with(cmd, func(ctx context.Context, images *lifetime.Lifetime, r *lifetime.Report) error {
			return l.prune(ctx, cmd, images, r, yes)
		})
	}

	return cmd
}

// pruned is the answer in JSON.
type pruned struct {
	*lifetime.Report

	// DryRun says that nothing was to be removed.
	DryRun  bool   `json:"dry_run"`
	Removed int    `json:"removed"`
	Error   string `json:"error,omitempty"`
}

func (l *imageLook) prune(ctx context.Context, cmd *cobra.Command, images *lifetime.Lifetime, r *lifetime.Report, yes bool) error {
	out, unused := cmd.OutOrStdout(), 0

	for _, i := range r.Images {
		if i.Kept == "" {
			unused++
		}
	}

	if l.output == outputTable {
		if err := tellImages(out, r, time.Now()); err != nil {
			return err
		}
	}

	removed, err := 0, error(nil)
	if yes {
		removed, err = images.Remove(ctx, r)
	}

	switch {
	case l.output == outputJSON:
		answer := pruned{Report: r, DryRun: !yes, Removed: removed}
		if err != nil {
			answer.Error = err.Error()
		}

		return errors.Join(err, writeJSON(out, answer))
	case yes:
		_, _ = fmt.Fprintf(out, "%d of %d removed.\n", removed, unused)
	case unused > 0:
		_, _ = fmt.Fprintf(out, "%d would be removed: say so with --yes.\n", unused)
	default:
		_, _ = fmt.Fprintln(out, "Nothing to remove.")
	}

	return err
}

// tellImages prints a report for people.
func tellImages(w io.Writer, r *lifetime.Report, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)

	if len(r.Images) > 0 {
		_, _ = fmt.Fprintln(t, "NAME\tID\tWHERE\tSIZE\tAGE\tLAST USED\tUSED BY\tKEPT")
	} else if _, err := fmt.Fprintln(w, "No images."); err != nil {
		return err
	}

	for _, i := range r.Images {
		tellImage(t, i, now)
	}

	if len(r.Uploads) > 0 {
		_, _ = fmt.Fprintln(t, "\nUPLOAD\tSCHEMATIC\tWHERE\tPHASE\tDONE\tRATE\tLEFT\tWAITS FOR")
	}

	for _, u := range r.Uploads {
		tellUpload(t, u)
	}

	if err := t.Flush(); err != nil {
		return err
	}

	for _, line := range imageNotes(r) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}

	return nil
}

// imageNotes are what a person should know about a report.
func imageNotes(r *lifetime.Report) []string {
	var lines []string

	if r.SiloHidden {
		lines = append(lines, "The token may not list the silo's images: none of them was looked at.")
	}

	for _, p := range r.Unread {
		lines = append(lines, "Not looked at: the token may not look into project "+p)
	}

	if r.Partial {
		lines = append(lines, "The token may not list the silo's projects: only those that Omni or --project names were looked at.")
	}

	return lines
}

// users names the first few.
func users(all []string) string {
	const shown = 3

	switch {
	case len(all) == 0:
		return "nothing"
	case len(all) > shown:
		return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
	default:
		return strings.Join(all, ", ")
	}
}

// age is a time for people: days, or less exactly the shorter it is.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	default:
		return fmt.Sprintf("%d seconds", max(d, 0)/time.Second)
	}
}

func tellImage(t io.Writer, i lifetime.Image, now time.Time) {
	where, kept, last := "silo", i.Kept, "not known"
	if i.ProjectID != "" {
		where = "project " + i.Project
	}

	if kept == "" {
		kept = "no"
	}

	switch {
	case len(i.UsedBy) > 0:
		last = "now"
	case i.LastUsed != nil:
		last = age(now.Sub(*i.LastUsed)) + " ago"
	}

	_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%d GiB\t%s\t%s\t%s\t%s\n",
		i.Name, i.ID, where, i.SizeBytes>>30, age(now.Sub(i.Created)), last, users(i.UsedBy), kept)
}

func tellUpload(t io.Writer, u lifetime.Upload) {
	where, rate, left := "silo", "", ""
	if u.ProjectID != "" {
		where = "project " + u.ProjectID
	}

	if u.Rate > 0 {
		rate = fmt.Sprintf("%.1f MB/s", float64(u.Rate)/1e6)
	}

	if u.Left > 0 {
		left = (time.Duration(u.Left) * time.Second).String()
	}

	_, _ = fmt.Fprintf(t, "Talos %s\t%.12s\t%s\t%s\t%d %% (%.1f of %.1f MB)\t%s\t%s\t%s\n", u.Talos, u.Schematic, where, u.Phase,
		u.Percent(), float64(u.Done)/1e6, float64(u.Total)/1e6, rate, left, u.Waits)
}
