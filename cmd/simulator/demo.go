package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/examples"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/demo"
)

// demoCommand shows the daemon at work on the simulators.
func demoCommand() *cobra.Command {
	var cfg demo.Config

	var scales []uint

	command := &cobra.Command{
		Use:   "demo",
		Short: "Show the daemon's main job on simulators",
		Long: `Starts a simulated rack, Omni and image factory and the daemon, each as a
process of its own on loopback, applies the example machine class, and scales a
cluster up and down to nothing. Fails when anything is left over, or when the
daemon breaks another of its promises on the way.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()

			cfg.Out = cmd.OutOrStdout()
			cfg.Class, cfg.ClassName = examples.MachineClass, examples.MachineClassName

			for _, n := range scales {
				cfg.Scales = append(cfg.Scales, uint32(n))
			}

			if len(scales) == 0 || scales[len(scales)-1] != 0 {
				return errors.New("--scale must end with 0: the demo shows that nothing is left")
			}

			return runDemo(ctx, cfg)
		},
	}

	flags := command.Flags()
	flags.StringVar(&cfg.Daemon, "daemon", "", "the daemon's binary; empty for the one beside this program")
	flags.BoolVar(&cfg.FullImage, "full-image", false, "use an image of a real one's size, 1,306,525,696 bytes")
	flags.UintSliceVar(&scales, "scale", []uint{3, 5, 2, 0}, "numbers of machines to ask for, one after the other; the last must be 0")
	flags.StringVar(&cfg.Dir, "dir", "", "directory for logs and keys, kept; empty for a new one that is kept only after a failure")

	return command
}

func runDemo(ctx context.Context, cfg demo.Config) (err error) {
	if cfg.Simulator, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}

	if cfg.Daemon == "" {
		cfg.Daemon = filepath.Join(filepath.Dir(cfg.Simulator), "omni-infra-provider-oxide")
	}

	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "oxide-demo-"); err != nil {
			return fmt.Errorf("making a directory for logs: %w", err)
		}

		defer func() {
			if err == nil {
				err = errors.Join(err, os.RemoveAll(cfg.Dir))
			}
		}()
	}

	if err := demo.Run(ctx, cfg); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}

		return err
	}

	return nil
}
