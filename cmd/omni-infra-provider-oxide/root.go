package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// errUsage marks a wrong command line.
var errUsage = errors.New("usage")

const long = `Gives Omni machines on an Oxide rack.

Omni asks for Talos machines with machine requests. For each of them this
daemon brings the Talos image into the silo, once, creates an instance that
joins Omni, and takes it away again when Omni no longer wants it. One daemon
serves one silo under one provider ID; machine classes refer to it by that ID.

Every option has a flag and an environment variable; the flag wins. Secrets
are taken from the environment or from files, never from the command line.

It exits with 0 after SIGTERM, within --shutdown-grace, with 2 when its configuration is wrong, and
with 1 on any other failure. An Omni or a rack that can not be reached is no
failure: the daemon waits for it and says so.`

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "omni-infra-provider-oxide",
		Short: "Gives Omni machines on an Oxide rack",
		Long:  long,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%w: unknown command %q; see --help", errUsage, args[0])
			}

			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}

	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see --help", errUsage, err)
	})

	loader := config.Register(root.Flags())

	root.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loader.Load(os.LookupEnv)
		if err != nil {
			return err
		}

		return serve(cmd.Context(), cfg)
	}

	root.AddCommand(newVersionCommand(), newMachineClassCommand(), newOrphansCommand(), newRequestsCommand(), newImagesCommand(),
		newStatusCommand(), newHealthcheckCommand(), newDoctorCommand(), newDiagnoseCommand(), newDocsCommand(), newOffboardCommand())

	return root
}

// serve wires the daemon and runs it until ctx ends.
func serve(ctx context.Context, cfg config.Config) error {
	w, logger, err := newWindows(cfg)
	if err != nil {
		return err
	}

	defer logger.Sync() //nolint:errcheck // standard error can not always be synced

	info := version.Get()
	logger.Info("starting", zap.String("version", info.Version), zap.String("commit", info.Commit), zap.Object("config", cfg))

	if err := provider.Bind(cfg.Provider.ID); err != nil {
		return err
	}

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

	factory := talos.NewFactory(talos.FactoryConfig{HTTP: &http.Client{Transport: ways.factory}, UserAgent: version.UserAgent()})
	defer factory.Close()

	board := health.NewBoard(logger, health.NeedRack, provider.NeedOmni)

	for i, line := range cfg.Insecure() {
		board.Note(fmt.Sprintf("insecure %d", i+1), "on", line)
	}

	closeWindows, err := w.open(ctx, cfg, logger, board)
	if err != nil {
		return err
	}

	defer closeWindows()

	var times *lease.Times
	if !cfg.Lease.Off {
		times = &cfg.Lease.Times
	}

	// Only for people; without a name the holder is known by its ID.
	host, _ := os.Hostname()

	daemon := provider.NewDaemon(provider.Options{
		ProviderID: cfg.Provider.ID, Name: cfg.Provider.Name, Description: cfg.Provider.Description,
		Schema: machineclass.Schema(), Omni: ways.omni, OmniKey: cfg.Omni.Key.Reveal(),
		Rack: silo, Factory: factory, FactoryURL: cfg.Factory.URL,
		ImageScope: image.Scope(cfg.Images.Scope), MaxUploads: cfg.Images.Uploads, KeepImages: keepImages(cfg),
		FactoryAccess: cfg.FactoryHeader(), FactoryClear: cfg.Factory.Certificates.Insecure,
		Concurrency: cfg.Concurrency, MaxCreates: cfg.MaxCreates,
		Settle: cfg.SettleTime, ScratchGrace: cfg.ScratchGrace, JoinTime: cfg.JoinTime,
		Janitor: provider.JanitorMode(cfg.Janitor), JanitorGrace: cfg.JanitorGrace,
		Lease: times, Host: host,
		OxideAccess: access, Credentials: followed(&cfg), ShutdownGrace: cfg.ShutdownGrace,
		Board: board, Logger: logger, Metrics: w.metrics,
	})

	// Whatever is left then, another process ends.
	defer context.AfterFunc(ctx, func() {
		logger.Info("ending", zap.Duration("grace", cfg.ShutdownGrace))
		time.AfterFunc(cfg.ShutdownGrace, func() {
			logger.Warn("the grace for the end is over, leaving the rest to the next process", zap.Duration("grace", cfg.ShutdownGrace))
			os.Exit(0)
		})
	})()

	err = daemon.Run(ctx)
	logger.Info("stopped", zap.Error(err))

	return err
}
