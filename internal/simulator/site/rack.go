package site

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
)

// setupScale lets a rack come up in some milliseconds: what tests wait for is
// something else.
const setupScale = 0.0005

// startRack begins to bring the rack up. With RackLater its address is known
// before anybody listens there, as a real rack's is.
func (s *Site) startRack(ctx context.Context, cfg Config) error {
	if cfg.Rack.Projects == nil {
		cfg.Rack.Projects = []string{Project}
	}

	if cfg.Rack.Booter == nil {
		cfg.Rack.Booter = rack.Guests{}
	}

	cfg.Rack.TimeScale, cfg.Rack.Logger = cfg.TimeScale, cfg.Log.Named("rack")

	if cfg.RackDescription == nil {
		d, err := plan.Default(4)
		if err != nil {
			return err
		}

		d = d.AtOnce()
		cfg.RackDescription = &d
	}

	address := "127.0.0.1:0"

	if cfg.RackLater {
		free, err := freeAddress(ctx)
		if err != nil {
			return err
		}

		address, s.RackURL = free, "http://"+free
	}

	var err error

	s.RackSetup, err = setup.New(setup.Config{
		Description: *cfg.RackDescription, Clock: setup.Scaled(setupScale), Log: cfg.Log.Named("setup"),
	})
	if err != nil {
		return err
	}

	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.up, s.served = cancel, make(chan struct{}), make(chan error, 1)

	go func() { s.served <- s.serveRack(serving, address, cfg.Rack) }()

	return nil
}

// serveRack serves the API from the hand-over on, until ctx ends.
func (s *Site) serveRack(ctx context.Context, address string, cfg rack.Config) error {
	l, err := s.openRack(ctx, address, cfg)
	close(s.up)

	if err != nil || ctx.Err() != nil {
		return err
	}

	return s.Rack.Serve(ctx, l)
}

func (s *Site) openRack(ctx context.Context, address string, cfg rack.Config) (net.Listener, error) {
	handOver, err := s.RackSetup.Run(ctx)
	if ctx.Err() != nil {
		return nil, nil //nolint:nilerr,nilnil // the site ends: that is no trouble, and nothing is opened
	}

	if err != nil {
		return nil, fmt.Errorf("bringing the rack up: %w", err)
	}

	setup.Configure(&cfg, handOver)

	server, err := rack.New(cfg) //nolint:contextcheck // it lives until it is closed
	if err != nil {
		return nil, err
	}

	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		server.Close()

		return nil, err
	}

	s.Rack, s.RackURL = server, "http://"+l.Addr().String()

	return l, nil
}

// WaitRack waits until the rack's API is open.
func (s *Site) WaitRack(ctx context.Context) error {
	select {
	case <-s.up:
	case <-ctx.Done():
		return ctx.Err()
	}

	if s.Rack != nil {
		return nil
	}

	// Close reads it again.
	err := <-s.served
	s.served <- err

	return errors.Join(errors.New("the rack did not come up"), err)
}

// freeAddress is one where nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}

	return l.Addr().String(), l.Close()
}
