package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

func newRequestsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "requests", Short: "Machine requests of this provider: give one up", Args: noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newReleaseCommand())

	return cmd
}

const releaseLong = `Gives up the removal of a machine request that can never end, because the rack
will never answer again.

It shows what may remain in the rack, asks for the request's ID to be typed,
then removes this provider's finalizer from the request and what is stored of it
in Omni. It makes no call to the rack. Should the rack come back, whatever is
left there are orphans, which the daemon removes.

It refuses for a request that is not being removed: remove it in Omni first. It
takes the daemon's options and can run beside it.

Exits with 0 when the request is given up, with 1 when something failed (run it
again: it goes on where it stopped), with 2 when the command line or the
configuration is wrong, and with 3 when it refused and did nothing in the rack
or to the request.`

// releaseTimeout bounds the work in Omni, not the time a person takes to type.
const releaseTimeout = 2 * time.Minute

func newReleaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "release ID", Short: "Give up the removal of a request when the rack can never answer again", Long: releaseLong,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("%w: %s takes the ID of one request; see --help", errUsage, cmd.CommandPath())
			}

			return nil
		},
	}
	loader := config.Register(cmd.Flags())

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := loader.Load(os.LookupEnv)
		if err != nil {
			return err
		}

		if err := provider.Bind(cfg.Provider.ID); err != nil {
			return err
		}

		return release(cmd, cfg, args[0])
	}

	return cmd
}

func release(cmd *cobra.Command, cfg config.Config, id string) error {
	looking, cancel := context.WithTimeout(cmd.Context(), releaseTimeout)
	defer cancel()

	ways, err := newWays(cfg)
	if err != nil {
		return err
	}

	omni, err := provider.Connect(looking, ways.omni, cfg.Omni.Key.Reveal())
	if err != nil {
		return err
	}

	defer omni.Close()

	remains, err := omni.Records().Review(looking, id)
	if err != nil {
		return refusal(err)
	}

	tellRemains(cmd.ErrOrStderr(), remains)

	if err := confirm(cmd, "Type the ID of the request to give it up: ", id); err != nil {
		return err
	}

	working, cancel := context.WithTimeout(cmd.Context(), releaseTimeout)
	defer cancel()

	if err := omni.Records().GiveUp(working, remains); err != nil {
		return refusal(err)
	}

	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Request %s is given up.\n", id)

	return err
}

// refusal marks an error that is one.
func refusal(err error) error {
	if r, ok := errors.AsType[*provider.RefusedError](err); ok {
		return fmt.Errorf("%w: %s", errRefused, r.Reason)
	}

	return err
}

func tellRemains(w io.Writer, r *provider.Remains) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

	if r.Gone {
		line("Request %s is gone from Omni; what this provider stored of it is left.", r.RequestID)
	} else {
		line("Request %s is being removed.", r.RequestID)
	}

	if r.Instance == (provider.Named{}) {
		line("Nothing is stored of a machine that was made for it.")

		return
	}

	line("This may remain in the rack, in project %s:", named(r.Project))
	line("  instance %s", named(r.Instance))

	for _, d := range r.Disks {
		line("  disk %s", named(d))
	}

	for _, a := range r.Addresses {
		line("  floating address %s", named(a))
	}

	for _, a := range r.Listed {
		line("  attached to the instance: floating address %s, which is not removed", named(a))
	}
}

func named(n provider.Named) string {
	switch {
	case n.ID == "" && n.Name == "":
		return "that is not known"
	case n.ID == "":
		return n.Name + " (made or not, its ID was never stored)"
	default:
		return fmt.Sprintf("%s (%s)", n.Name, n.ID)
	}
}
