package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

const statusLong = `Shows what this provider is doing, as Omni knows it: which replica works, its
health, each machine request with its stage and what it waits for and why, and
the images that are being uploaded, with their progress.

It asks Omni alone, so it also works while the rack is away, and it changes
nothing. --watch shows it anew every two seconds (--every) until Ctrl-C.

Exits with 0, with 1 when Omni can not be asked, and with 2 when the command
line or the configuration is wrong.`

type statusCommand struct {
	loader *config.Loader
	output string
	watch  bool
	every  time.Duration
	set    string
}

func newStatusCommand() *cobra.Command {
	s := &statusCommand{}
	cmd := &cobra.Command{
		Use: "status", Short: "Show requests, what they wait for, uploads and who works", Long: statusLong, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.loader = config.Register(cmd.Flags())
	cmd.Flags().StringVarP(&s.output, "output", "o", outputTable, "form of the answer: table or json")
	cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "show it again and again")
	cmd.Flags().DurationVar(&s.every, "every", 2*time.Second, "how often, with --watch, at least 500ms")
	cmd.Flags().StringVar(&s.set, "set", "", "only the requests of this machine set")

	return cmd
}

func (s *statusCommand) run(cmd *cobra.Command) error {
	switch {
	case s.output != outputTable && s.output != outputJSON:
		return fmt.Errorf("%w: --output %q is neither %s nor %s", errUsage, s.output, outputTable, outputJSON)
	case s.every < 500*time.Millisecond:
		return fmt.Errorf("%w: --every %s is less than 500ms", errUsage, s.every)
	}

	cfg, err := s.loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}

	if err := provider.Bind(cfg.Provider.ID); err != nil {
		return err
	}

	ways, err := newWays(cfg)
	if err != nil {
		return err
	}

	omni, err := provider.Connect(cmd.Context(), ways.omni, cfg.Omni.Key.Reveal())
	if err != nil {
		return err
	}

	defer omni.Close()

	if !s.watch {
		return s.show(cmd.Context(), omni, cmd.OutOrStdout())
	}

	return s.again(cmd, omni)
}

// again shows it until somebody ends it. A look that fails is told in its place:
// whoever watches wants to see when Omni is back.
func (s *statusCommand) again(cmd *cobra.Command, omni *provider.Connection) error {
	out := cmd.OutOrStdout()

	return repeat(cmd.Context(), out, isTerminal(out), s.every, func(ctx context.Context, w io.Writer) error { return s.show(ctx, omni, w) })
}

// repeat writes a page again and again, on a terminal in the place of the last one,
// elsewhere below it, until the context ends.
func repeat(ctx context.Context, out io.Writer, terminal bool, every time.Duration, show func(context.Context, io.Writer) error) error {
	for {
		text := looked(ctx, show)

		select {
		case <-ctx.Done(): // the user has seen enough
			return nil
		default:
		}

		if terminal {
			// Home, each line cleared to its end, and whatever was below.
			text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
		}

		if _, err := io.WriteString(out, text); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// looked is what one look shows, or why it could not be had.
func looked(ctx context.Context, show func(context.Context, io.Writer) error) string {
	var page strings.Builder

	if err := show(ctx, &page); err != nil {
		return err.Error() + "\n"
	}

	return page.String()
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}

	info, err := f.Stat()

	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (s *statusCommand) show(ctx context.Context, omni *provider.Connection, w io.Writer) error {
	o, err := omni.Overview(ctx)
	if err != nil {
		return err
	}

	if s.set != "" {
		kept := []provider.RequestView{}

		for _, r := range o.Requests {
			if r.Set == s.set {
				kept = append(kept, r)
			}
		}

		o.Requests = kept
	}

	if s.output == outputJSON {
		return writeJSON(w, o)
	}

	return tellOverview(w, o, time.Now())
}

// tellOverview prints it for people.
func tellOverview(w io.Writer, o *provider.Overview, now time.Time) error {
	var b strings.Builder

	fmt.Fprintf(&b, "Provider %s, Omni %s\n", o.Provider, o.OmniVersion)
	fmt.Fprintln(&b, "Works:    "+leaseLine(o.Lease, now))
	fmt.Fprintln(&b, "Health:   "+healthLine(o.Health, now))
	fmt.Fprintln(&b, "Requests: "+stagesLine(o.Requests))

	if len(o.Uploads) > 0 {
		fmt.Fprintln(&b)

		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "UPLOAD\tPROJECT\tREQUESTS\tPROGRESS\tSAYS")

		for _, u := range o.Uploads {
			_, _ = fmt.Fprintf(t, "Talos %s %.8s\t%s\t%d\t%s\t%s\n", u.Talos, u.Schematic, u.Project, u.Requests, bar(u.Percent), u.Says)
		}

		_ = t.Flush()
	}

	if len(o.Requests) > 0 {
		fmt.Fprintln(&b)

		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "REQUEST\tSTAGE\tSTEP\tAGE\tPROJECT\tWAITS")

		for _, r := range o.Requests {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Stage, r.Step, elapsed(now.Sub(r.Created)), r.Project, r.Waits)
		}

		_ = t.Flush()
	}

	_, err := io.WriteString(w, b.String())

	return err
}

func leaseLine(l *provider.LeaseView, now time.Time) string {
	switch {
	case l == nil:
		return "there is no lease: no replica has run yet, or they run with --lease off"
	case l.Holder == "":
		return fmt.Sprintf("nobody, the lease is free since %s ago (term %d)", elapsed(now.Sub(l.Renewed)), l.Term)
	default:
		return fmt.Sprintf("%s holds the lease, term %d, renewed %s ago", l.Holder, l.Term, elapsed(now.Sub(l.Renewed)))
	}
}

// beatsWithin is how old a heartbeat may be before Omni takes the provider for
// disconnected.
const beatsWithin = 31 * time.Second

func healthLine(h *provider.HealthView, now time.Time) string {
	switch {
	case h == nil:
		return "the daemon has never told"
	case now.Sub(h.Heartbeat) > beatsWithin:
		return fmt.Sprintf("no heartbeat for %s: no replica works, or none reaches Omni (then: %s)", elapsed(now.Sub(h.Heartbeat)), orWell(h.Error))
	default:
		return orWell(h.Error)
	}
}

func orWell(s string) string {
	if s == "" {
		return "well"
	}

	return s
}

func stagesLine(requests []provider.RequestView) string {
	if len(requests) == 0 {
		return "none"
	}

	counts := map[string]int{}
	for _, r := range requests {
		counts[r.Stage]++
	}

	var parts []string

	for _, stage := range []string{"new", "provisioning", "failed", "provisioned", "removing"} {
		if n := counts[stage]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, stage))
		}
	}

	return strings.Join(parts, ", ")
}

// bar draws a percentage, -1 for one that is not known.
func bar(percent int) string {
	const width = 20

	if percent < 0 {
		return strings.Repeat(".", width)
	}

	full := min(percent, 100) * width / 100

	return strings.Repeat("#", full) + strings.Repeat(".", width-full) + fmt.Sprintf(" %d %%", percent)
}

// elapsed is a duration for people, in its two largest units at most.
func elapsed(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
