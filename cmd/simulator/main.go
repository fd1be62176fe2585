// Command simulator serves simulations of the systems that the provider talks
// to: an Oxide rack, Omni and the Talos image factory. Each speaks the real
// protocol, so that the real provider, and any other client, runs against it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := rootCommand().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "simulator:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "simulator",
		Short:         "Simulations of an Oxide rack, Omni and the Talos image factory",
		SilenceErrors: true,
		SilenceUsage:  true,
	}

	root.AddCommand(
		rackCommand(),
		omniCommand(),
		factoryCommand(),
		demoCommand(),
	)

	return root
}
