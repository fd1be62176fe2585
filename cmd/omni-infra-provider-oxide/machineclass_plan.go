package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

const outputYAML = "yaml"

const planLong = `Says what the daemon would make for a machine request of a class: names, sizes,
addresses, groups, the image and whether it is there, and the silo's quota before
and after. It writes nothing, neither in the rack nor in Omni.

FILE is what stands in providerdata, or a file for omnictl apply with one machine
class in it, in YAML or JSON; - is standard input. The request need not be there.
The daemon must have run once; rack and Omni are reached as it does.

Exits with 0 when the machine would be made, with 1 when it would not, with the
line that the request would show in Omni, and with 2 when the command line or the
configuration is wrong or the file can not be read.`

// planner is what the command shows a plan with.
type planner struct {
	loader  *config.Loader
	output  string
	timeout time.Duration
	opts    provider.PreviewOptions
}

func newPlanCommand() *cobra.Command {
	p := &planner{}
	cmd := &cobra.Command{
		Use:   "plan FILE --request ID --talos VERSION",
		Short: "Say what would be made for a machine request of a class, and make nothing", Long: planLong,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: plan takes one file, or -; see --help", errUsage)
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.show(cmd, args[0]) },
	}

	p.loader = config.Register(cmd.Flags())

	cmd.Flags().StringVar(&p.opts.Request, "request", "", "ID of a machine request, such as talos-workers-bcdfgh")
	cmd.Flags().StringVar(&p.opts.Talos, "talos", "", "Talos version, such as 1.13.5")
	cmd.Flags().StringVarP(&p.output, "output", "o", outputTable, "form of the answer: table, json or yaml")
	cmd.Flags().DurationVar(&p.timeout, "timeout", time.Minute, "give up after this time")

	return cmd
}

func (p *planner) show(cmd *cobra.Command, file string) error {
	switch {
	case p.opts.Request == "":
		return fmt.Errorf("%w: --request is not set", errUsage)
	case p.opts.Talos == "":
		return fmt.Errorf("%w: --talos is not set", errUsage)
	case p.output != outputTable && p.output != outputJSON && p.output != outputYAML:
		return fmt.Errorf("%w: --output %q is neither %s, %s nor %s", errUsage, p.output, outputTable, outputJSON, outputYAML)
	}

	text, err := readClassFile(file, cmd.InOrStdin())
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}

	found := machineclass.ValidateFile(text)

	switch {
	case len(found) != 1:
		return fmt.Errorf("%w: %s has %d machine classes, must have one", errUsage, file, len(found))
	case len(found[0].Mistakes) > 0:
		return report(cmd.OutOrStdout(), outputTable, found)
	}

	p.opts.Class, p.opts.KernelArgs = machineclass.ProviderData(text)

	cfg, err := p.loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(cmd.Context(), p.timeout, fmt.Errorf("gave up after %s", p.timeout))
	defer cancel()

	preview, err := p.preview(ctx, cfg)
	if err != nil {
		return err
	}

	return writePreview(cmd.OutOrStdout(), p.output, preview)
}

func (p *planner) preview(ctx context.Context, cfg config.Config) (*provider.Preview, error) {
	ways, err := newWays(cfg)
	if err != nil {
		return nil, err
	}

	access, err := readAccess(&cfg)
	if err != nil {
		return nil, err
	}

	silo, err := ways.rack(cfg, access)
	if err != nil {
		return nil, err
	}

	defer silo.Close()

	if err := provider.Bind(cfg.Provider.ID); err != nil {
		return nil, err
	}

	omni, err := provider.Connect(ctx, ways.omni, cfg.Omni.Key.Reveal())
	if err != nil {
		return nil, err
	}

	defer omni.Close()

	p.opts.Rack, p.opts.FactoryURL, p.opts.Scope = silo, cfg.Factory.URL, image.Scope(cfg.Images.Scope)

	preview, err := omni.Preview(ctx, p.opts)
	if err != nil && ctx.Err() != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}

	return preview, err
}

func writePreview(w io.Writer, output string, preview *provider.Preview) error {
	switch output {
	case outputJSON:
		return writeJSON(w, preview)
	case outputYAML:
		text, err := yaml.Marshal(preview)
		if err == nil {
			_, err = w.Write(text)
		}

		return err
	}

	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range preview.Lines() {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", line[0], line[1]) // the writer keeps its first error for Flush
	}

	return table.Flush()
}
