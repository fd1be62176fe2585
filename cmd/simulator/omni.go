package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

// omniKeyLifetime is what Omni gives a service account's key.
const omniKeyLifetime = 365 * 24 * time.Hour

// omniOptions are the flags of the simulated Omni.
type omniOptions struct {
	config    omni.Config
	providers []string
	logLevel  string
}

// omniCommand serves a simulated Omni until it is told to end.
func omniCommand() *cobra.Command {
	var options omniOptions

	command := &cobra.Command{
		Use:   "omni",
		Short: "Serve a simulated Omni",
		Long: `Serve a simulated Omni on loopback: the API that providers and omnictl speak,
the machine API that Talos joins by, and the link that stands for WireGuard.

With --data-dir it keeps its resources there and writes admin.key, and <id>.key
for each --provider: service-account keys for OMNI_SERVICE_ACCOUNT_KEY. Once it
serves it prints one line on standard output:

  ready omni endpoint=grpc://HOST:PORT control=http://HOST:PORT`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()

			return serveOmni(ctx, cmd, options)
		},
	}

	flags := command.Flags()
	flags.StringVar(&options.config.GRPCListen, "listen", "127.0.0.1:8099", "address of the Omni API")
	flags.StringVar(&options.config.MachineAPIListen, "machine-api", "127.0.0.1:0", "address of the machine API that guests join by")
	flags.StringVar(&options.config.LinkListen, "link", "127.0.0.1:0", "address of the links of guests that have joined")
	flags.StringVar(&options.config.ControlListen, "control", "", "loopback address of the control endpoint, empty for none")
	flags.StringVar(&options.config.FactoryURL, "factory-url", "", "URL of the image factory, as Omni's features config says it")
	flags.StringVar(&options.config.DataDir, "data-dir", "", "directory for resources and keys, empty to keep them in memory")
	flags.StringVar(&options.config.Version, "version", "v1.9.3", "version that Omni says it is")
	flags.StringSliceVar(&options.config.TalosVersions, "talos-version", nil, "Talos version that Omni offers, without v; may be repeated")
	flags.Float64Var(&options.config.TimeScale, "time-scale", 1, "factor on Omni's own delays")
	flags.StringArrayVar(&options.providers, "provider", nil, "ID of a provider to make, with a key in the data directory; may be repeated")
	flags.StringVar(&options.logLevel, "log-level", "info", "debug, info, warn or error")

	return command
}

func serveOmni(ctx context.Context, cmd *cobra.Command, options omniOptions) error {
	if len(options.providers) > 0 && options.config.DataDir == "" {
		return errors.New("--provider needs --data-dir, where the provider's key is written")
	}

	logger, err := newLogger(options.logLevel)
	if err != nil {
		return err
	}

	options.config.Log = logger

	server, err := omni.New(options.config)
	if err != nil {
		return err
	}

	if err := server.Start(ctx); err != nil {
		return err
	}
	defer server.Close() //nolint:errcheck // it never fails

	if err := writeOmniKeys(ctx, server, options); err != nil {
		return err
	}

	more := ""
	if control := server.Address(omni.ListenerControl); control != "" {
		more = "control=http://" + control
	}

	if err := sayReady(cmd, "omni", server.Endpoint(), more); err != nil {
		return err
	}

	<-ctx.Done()

	return nil
}

// writeOmniKeys writes the keys that the data directory lacks. Keys of an
// earlier run stay valid with its resources.
func writeOmniKeys(ctx context.Context, server *omni.Server, options omniOptions) error {
	directory := options.config.DataDir
	if directory == "" {
		return nil
	}

	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}

	if err := writeOmniKey(ctx, server, filepath.Join(directory, "admin.key"), func() (string, error) {
		return server.MintAdminKey(ctx, omniKeyLifetime)
	}); err != nil {
		return err
	}

	for _, id := range options.providers {
		if id == "" || id == "admin" || strings.ContainsAny(id, "/\\") || strings.HasPrefix(id, ".") {
			return fmt.Errorf("%q can not be a provider here: its key could not be written to <id>.key", id)
		}

		if err := writeOmniKey(ctx, server, filepath.Join(directory, id+".key"), func() (string, error) {
			return server.MintProviderKey(ctx, id, omniKeyLifetime)
		}); err != nil {
			return err
		}
	}

	return nil
}

func writeOmniKey(ctx context.Context, server *omni.Server, path string, mint func() (string, error)) error {
	kept, err := os.ReadFile(path)
	if err == nil && server.KnowsKey(ctx, strings.TrimSpace(string(kept))) {
		return nil
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading a key: %w", err)
	}

	key, err := mint()
	if err != nil {
		return err
	}

	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}

	return nil
}
