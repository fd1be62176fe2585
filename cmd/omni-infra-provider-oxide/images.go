package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

const imagesLong = `Brings Talos images into the rack before machines need them.

The image is the one that the daemon would make for a class: the same name and
mark, in the silo or in the project as --image-scope says, made once. The upload
goes through a scratch disk in --project. It is safe beside a running daemon:
both find what the other has made, and whoever comes second uses it.

Omni must be reached, also without a factory: whose the image is, and that
somebody is at work on it, is kept there. The daemon must have run once.

Ctrl-C undoes the upload; what can not be undone within ten seconds is removed
by the daemon two minutes later.

Exits with 0 when the image is there, with 1 when something failed, and with 2
when the command line or the configuration is wrong.`

func newImagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "images", Short: "Talos images in the rack: list them, bring one, remove unused ones", Long: imagesLong, Args: noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImagesListCommand(), newImagesEnsureCommand(), newImagesImportCommand(), newImagesPruneCommand())

	return cmd
}

// bringer is what both commands bring an image with.
type bringer struct {
	loader  *config.Loader
	id      naming.ImageIdentity
	project string
	file    string
	timeout time.Duration
}

func newImagesEnsureCommand() *cobra.Command {
	b := &bringer{}
	cmd := &cobra.Command{
		Use: "ensure --talos VERSION --schematic ID --project PROJECT", Short: "Bring an image from the image factory, unless it is there",
		Long: imagesLong, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.bring(cmd) },
	}
	b.register(cmd)

	return cmd
}

func newImagesImportCommand() *cobra.Command {
	b := &bringer{}
	cmd := &cobra.Command{
		Use: "import FILE --talos VERSION --schematic ID --project PROJECT", Short: "Bring an image from a file, where no image factory is reached",
		Long: imagesLong + `

FILE is the factory's nocloud image, raw or packed with zstd, xz or gzip, for
the given schematic and version: that can not be told from its content, so take
care. What can be told is checked: its partition table, its length and the sums
of its packing. --factory-host is the factory that the daemon uses, if Omni does
not name it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("%w: %s takes one file; see --help", errUsage, cmd.CommandPath())
			}

			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			b.file = args[0]

			return b.bring(cmd)
		},
	}
	b.register(cmd)
	cmd.Flags().StringVar(&b.id.FactoryHost, "factory-host", "", "host[:port] of the image factory that the file comes from; empty for the daemon's")

	return cmd
}

func (b *bringer) register(cmd *cobra.Command) {
	b.loader = config.Register(cmd.Flags())

	f := cmd.Flags()
	f.StringVar(&b.id.Talos, "talos", "", "Talos version, such as 1.13.5")
	f.StringVar(&b.id.Schematic, "schematic", "", "schematic ID, 64 hexadecimal digits")
	f.StringVar(&b.id.Arch, "arch", "amd64", "architecture: amd64 or arm64; the rack's is amd64")
	f.BoolVar(&b.id.SecureBoot, "secure-boot", false, "the image for secure boot")
	f.StringVar(&b.project, "project", "", "name or ID of the project that the upload goes through, and in which the image stays unless it goes to the silo")
	f.DurationVar(&b.timeout, "timeout", 2*time.Hour, "give up after this time")
}

var schematicForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check takes what the command line says of the image.
func (b *bringer) check() error {
	v, err := talos.ParseVersion(b.id.Talos)
	if err == nil {
		err = v.Supported()
	}

	switch {
	case b.id.Talos == "":
		return fmt.Errorf("%w: --talos is not set", errUsage)
	case err != nil:
		return fmt.Errorf("%w: --talos: %w", errUsage, err)
	case !schematicForm.MatchString(b.id.Schematic):
		return fmt.Errorf("%w: --schematic %q is not the full ID, 64 hexadecimal digits", errUsage, b.id.Schematic)
	case b.id.Arch != "amd64" && b.id.Arch != "arm64":
		return fmt.Errorf("%w: --arch %q is neither amd64 nor arm64", errUsage, b.id.Arch)
	case b.project == "":
		return fmt.Errorf("%w: --project is not set", errUsage)
	}

	b.id.Talos = v.String()

	return nil
}

func (b *bringer) bring(cmd *cobra.Command) error {
	if err := b.check(); err != nil {
		return err
	}

	cfg, err := b.loader.Load(os.LookupEnv)
	if err != nil {
		return err
	}

	logger, err := newLogger(cfg.Log)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(cmd.Context(), b.timeout, fmt.Errorf("gave up after %s", b.timeout))
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

	factory := talos.NewFactory(talos.FactoryConfig{HTTP: &http.Client{Transport: ways.factory}, UserAgent: version.UserAgent()})
	defer factory.Close()

	bar := newProgress(cmd.ErrOrStderr())

	status, err := omni.Import(ctx, provider.ImportOptions{
		Rack: silo, Factory: factory, FactoryURL: cfg.Factory.URL,
		FactoryAccess: cfg.Factory.Header, FactoryClear: cfg.Factory.Certificates.Insecure,
		File: b.file, Scope: image.Scope(cfg.Images.Scope), Identity: b.id, Project: b.project, Logger: logger,
	}, bar.tell)

	bar.end()

	switch {
	case errors.Is(cmd.Context().Err(), context.Canceled):
		return errors.New("interrupted: the upload is undone, or will be by the daemon")
	case err != nil:
		return err
	}

	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\t%d GiB\n", naming.Image(b.id), status.ImageID, status.SizeBytes>>30)

	return err
}
