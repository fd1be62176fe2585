package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// factoryOptions are the flags of the simulated image factory.
type factoryOptions struct {
	config    factory.Config
	fullImage bool
	logLevel  string
}

// factoryCommand serves a simulated image factory until it is told to end.
func factoryCommand() *cobra.Command {
	var options factoryOptions

	command := &cobra.Command{
		Use:   "factory",
		Short: "Serve a simulated Talos image factory",
		Long: `Serve a simulated Talos image factory on loopback: schematics, and nocloud disk
images made from them as .raw, .raw.xz and .raw.zst.

GET /simulator/summary counts the downloads, GET /simulator/calls lists the
latest calls. POST /simulator/faults takes a list of faults, for example

  [{"kind": "status", "status": 503, "match": ".raw.zst", "times": 3}]

with the kinds status, html, not-served, forget, redirect, truncate, stall and
corrupt; DELETE drops them. Once it serves it prints one line on standard output:

  ready factory endpoint=http://HOST:PORT`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()

			return serveFactory(ctx, cmd, options)
		},
	}

	flags := command.Flags()
	flags.StringVar(&options.config.Address, "listen", "127.0.0.1:12221", "address to listen on")
	flags.StringVar(&options.config.DataDir, "data-dir", "", "directory for schematics, and for large images while it runs; empty to keep them in memory")
	flags.StringVar(&options.config.Token, "token", "", "bearer token that each request must bring, empty for none")
	flags.Int64Var(&options.config.ImageSize, "image-size", talosimage.SmallSize, "size of a raw disk in bytes")
	flags.BoolVar(&options.fullImage, "full-image", false, "make disks of the size and content of a real Talos image (1.2 GiB)")
	flags.DurationVar(&options.config.BuildDelay, "build-delay", 0, "how long a build takes before its first byte")
	flags.Int64Var(&options.config.Rate, "rate", 0, "bound of each download in bytes a second, 0 for none")
	flags.BoolVar(&options.config.Ranges, "ranges", false, "obey Range, as object storage does and the factory does not")
	flags.StringSliceVar(&options.config.Versions, "talos-version", nil, "Talos version on offer, without v; may be repeated")
	flags.Float64Var(&options.config.TimeScale, "time-scale", 1, "factor on the build delay")
	flags.StringVar(&options.logLevel, "log-level", "info", "debug, info, warn or error")
	command.MarkFlagsMutuallyExclusive("image-size", "full-image")

	return command
}

func serveFactory(ctx context.Context, cmd *cobra.Command, options factoryOptions) (err error) {
	if options.config.Log, err = newLogger(options.logLevel); err != nil {
		return err
	}

	if options.fullImage {
		options.config.ImageSize, options.config.ContentBytes = talosimage.FullSize, talosimage.FullContent
	}

	server, err := factory.New(options.config) //nolint:contextcheck // it serves until it is closed
	if err != nil {
		return err
	}

	defer func() {
		if closeErr := server.Close(); err == nil {
			err = closeErr
		}
	}()

	if err := sayReady(cmd, "factory", server.URL(), ""); err != nil {
		return err
	}

	<-ctx.Done()

	return nil
}
