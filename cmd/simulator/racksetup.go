package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// rackSetup are the flags of how the simulated rack comes up.
type rackSetup struct {
	file      string
	data      string
	listen    string
	sleds     int
	timeScale float64
}

func (s *rackSetup) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.file, "rack", "", "file with the rack's description, YAML or JSON; empty for the built-in one")
	flags.IntVar(&s.sleds, "sleds", 4, "number of sleds of the built-in rack")
	flags.StringVar(&s.data, "data", "", "directory that keeps the rack's plans and what its sleds and its database know of them; empty to keep them in memory")
	flags.Float64Var(&s.timeScale, "setup-time-scale", 0.1, "factor on the delays of coming up, beside --time-scale")
	flags.StringVar(&s.listen, "setup-listen", "",
		"loopback address for GET /setup, which tells how far the rack is, and POST /setup/sleds/SERIAL/disks/SERIAL, which makes a disk come up; empty for none")
}

func (s *rackSetup) description() (plan.Description, error) {
	if s.timeScale <= 0 {
		return plan.Description{}, fmt.Errorf("--setup-time-scale is %g: it must be above 0", s.timeScale)
	}

	if s.file == "" {
		d, err := plan.Default(s.sleds)
		if err != nil {
			return plan.Description{}, fmt.Errorf("--sleds: %w", err)
		}

		return d, nil
	}

	raw, err := os.ReadFile(s.file)
	if err != nil {
		return plan.Description{}, fmt.Errorf("reading --rack: %w", err)
	}

	d, err := plan.Parse(raw)
	if err != nil {
		return plan.Description{}, fmt.Errorf("reading --rack: %w", err)
	}

	return d, nil
}

// comeUp brings a rack up and returns when it has been handed over, or without
// error when ctx ends. The API is told what the rack is by its configuration.
// What goes on inside, goes on until end is called.
func (s *rackSetup) comeUp(ctx context.Context, out io.Writer, description plan.Description, config *rack.Config) (end func(), err error) {
	var ends []func() error

	finish := func() {
		for i := len(ends) - 1; i >= 0; i-- {
			if err := ends[i](); err != nil {
				config.Logger.Error("ending the rack", zap.Error(err))
			}
		}
	}

	defer func() {
		if err != nil {
			finish()
		}
	}()

	var kept store.Store

	if s.data != "" {
		directory, err := store.Open(s.data)
		if err != nil {
			return nil, err
		}

		kept = directory
		ends = append(ends, directory.Close)
	}

	r, err := setup.New(setup.Config{
		Description: description, Store: kept, Clock: setup.Scaled(s.timeScale * config.TimeScale), Log: config.Logger,
		Say: func(line string) { fmt.Fprintln(out, "setup:", line) },
	})
	if err != nil {
		return nil, err
	}

	ends = append(ends, r.Close)

	if s.listen != "" {
		_, stop, err := serveBeside(ctx, "--setup-listen", s.listen, r.Technician(), config.Logger)
		if err != nil {
			return nil, err
		}

		ends = append(ends, stop)
	}

	handOver, err := r.Run(ctx)
	if ctx.Err() != nil {
		return finish, nil // it was told to end
	}

	if err != nil {
		return nil, err
	}

	setup.Configure(config, handOver)

	return finish, nil
}

// serveBeside serves something at an address of its own, which a flag gives,
// until stop is called.
func serveBeside(ctx context.Context, flag, address string, handler http.Handler, log *zap.Logger) (at string, stop func() error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", flag, err)
	}

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}

	var serving sync.WaitGroup

	serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("an interface beside the rack's has ended", zap.String("flag", flag), zap.Error(err))
		}
	})

	return l.Addr().String(), func() error {
		err := server.Close()
		serving.Wait()

		return err
	}, nil
}
