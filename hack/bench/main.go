// Command bench measures the daemon against simulators on the same machine:
//
//	go run ./hack/bench images [--rows fast,xz] [--runs 3] [--output json]
//	go run ./hack/bench load [--rows arrive,idle] [--machines 1000] [--output json]
//
// load has machines come and go, with the real daemon as a process of its own and
// all simulators in this one; internal/docs/scale.md says how to read it.
//
// With images each part runs in a process of its own, so that processor time, memory and
// connections are those of the importer alone. The parts are this program
// again, started with the name of a role and its configuration:
//
//	bench ──┬── factory: serves the image's files, at a rate
//	        ├── rack: the simulated rack, with a delay of writes and a bandwidth
//	        ├── import: the daemon's own packages, from factory to rack
//	        └── download, decode, upload: one step alone, for the lower bound
//
// Seconds differ from machine to machine and from hour to hour; only ratios
// within one run say something.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // nothing else is deferred
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: bench images|load [flags]")
	}

	switch args[0] {
	case "images":
		return images(ctx, args[1:])
	case "load":
		return load(ctx, args[1:], os.Stdout)
	}

	if role, ok := roles[args[0]]; ok && len(args) == 2 {
		return role(ctx, args[1])
	}

	return fmt.Errorf("there is no benchmark %q; there are: images, load", args[0])
}
