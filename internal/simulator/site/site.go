// Package site is a whole site in one process, for tests: a simulated rack,
// Omni and image factory on loopback, with the keys to them. The daemon under
// test runs against their addresses as it would against real ones.
package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
)

// Project is the project that a site has.
const Project = "talos"

// keyLifetime is that of all keys made here, as Omni's are.
const keyLifetime = 365 * 24 * time.Hour

// Config changes what a site is made of; the zero value is a site that runs
// twenty times as fast as a real one.
type Config struct {
	// TimeScale multiplies all delays, 0.05 if zero.
	TimeScale float64
	Rack      rack.Config
	// RackDescription is the rack that comes up, the built-in one if nil. What
	// Rack sets itself goes before what the description says.
	RackDescription *plan.Description
	// RackLater lets Start return while the rack is still coming up: Rack is
	// there when WaitRack has returned.
	RackLater bool
	Factory   factory.Config
	Omni      omni.Config
	// Log is nil for none.
	Log *zap.Logger
}

// Site is a running site.
type Site struct {
	Rack    *rack.Server
	Omni    *omni.Server
	Factory *factory.Server
	// RackSetup brings the rack up.
	RackSetup *setup.Rack
	// Operator has all rights.
	Operator *operator.Operator

	// RackURL and RackToken open the rack.
	RackURL, RackToken string

	cancel context.CancelFunc
	up     chan struct{} // closed when the API is open, or never will be
	served chan error
}

// Start makes a site. Close must be called on it.
func Start(ctx context.Context, cfg Config) (s *Site, err error) {
	if cfg.TimeScale == 0 {
		cfg.TimeScale = 0.05
	}

	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}

	s = &Site{RackToken: rack.DefaultToken}

	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()

	if cfg.Factory.TimeScale == 0 {
		cfg.Factory.TimeScale = cfg.TimeScale
	}

	//nolint:contextcheck // it serves until it is closed
	if s.Factory, err = factory.New(cfg.Factory); err != nil {
		return s, fmt.Errorf("starting the factory: %w", err)
	}

	cfg.Omni.FactoryURL, cfg.Omni.TimeScale, cfg.Omni.Log = s.Factory.URL(), cfg.TimeScale, cfg.Log.Named("omni")

	if s.Omni, err = omni.New(cfg.Omni); err != nil {
		return s, fmt.Errorf("making Omni: %w", err)
	}

	if err = s.Omni.Start(ctx); err != nil {
		return s, fmt.Errorf("starting Omni: %w", err)
	}

	if err = s.startRack(ctx, cfg); err != nil {
		return s, fmt.Errorf("starting the rack: %w", err)
	}

	if !cfg.RackLater {
		if err = s.WaitRack(ctx); err != nil {
			return s, fmt.Errorf("starting the rack: %w", err)
		}
	}

	if err = s.startOperator(ctx); err != nil {
		return s, fmt.Errorf("making the operator: %w", err)
	}

	return s, nil
}

func (s *Site) startOperator(ctx context.Context) error {
	key, err := s.Omni.MintAdminKey(ctx, keyLifetime)
	if err != nil {
		return err
	}

	s.Operator, err = operator.New(operator.Config{
		OmniEndpoint: s.Omni.Endpoint(), OmniKey: key, RackHost: s.RackURL, RackToken: s.RackToken, Project: Project,
	})

	return err
}

// ProviderKey makes a provider and answers its key.
func (s *Site) ProviderKey(ctx context.Context, id string) (string, error) {
	return s.Omni.MintProviderKey(ctx, id, keyLifetime)
}

// Close ends everything and waits for it.
func (s *Site) Close() error {
	var errs []error

	if s.Operator != nil {
		errs = append(errs, s.Operator.Close())
	}

	if s.cancel != nil {
		s.cancel()
		errs = append(errs, <-s.served)
	}

	if s.Rack != nil {
		s.Rack.Close()
	}

	if s.RackSetup != nil {
		errs = append(errs, s.RackSetup.Close())
	}

	if s.Omni != nil {
		errs = append(errs, s.Omni.Close())
	}

	if s.Factory != nil {
		errs = append(errs, s.Factory.Close())
	}

	return errors.Join(errs...)
}
