// Command omni-infra-provider-oxide gives Omni machines on an Oxide rack.
//
// It exits with 0 after SIGTERM or SIGINT (with 1, at once, after a second one), with 2 when its configuration is
// wrong, and with 1 on any other failure. Commands that a person runs exit with
// 3 when they refuse.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
)

const (
	exitFailure = 1
	// exitConfig tells a supervisor that starting again is of no use.
	exitConfig = 2
	// exitRefused tells that a command did nothing, on purpose.
	exitRefused = 3
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// endOnSignals has the first signal end the process in good order, and the second
// one at once.
func endOnSignals(stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(exitFailure)
	}()
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	endOnSignals(stop)

	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}

	if m, ok := errors.AsType[config.Mistakes](err); ok {
		for _, line := range m.Lines() {
			_, _ = fmt.Fprintln(stderr, "configuration:", line)
		}

		return exitConfig
	}

	switch {
	case errors.Is(err, errWrongClass), errors.Is(err, errUnwell):
		return exitFailure
	case errors.Is(err, errWrongConfig):
		return exitConfig
	}

	if errors.Is(err, errUsage) {
		_, _ = fmt.Fprintln(stderr, err)

		return exitConfig
	}

	if errors.Is(err, errRefused) {
		_, _ = fmt.Fprintln(stderr, err)

		return exitRefused
	}

	_, _ = fmt.Fprintln(stderr, "error:", err)

	return exitFailure
}
