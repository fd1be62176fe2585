package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/siderolabs/omni/client/pkg/client"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// ways are how the three endpoints are reached.
type ways struct {
	omni          provider.Way
	silo, factory *http.Transport
}

func newWays(cfg config.Config) (*ways, error) {
	n := reach.New()

	address, options, err := n.Tunnel(cfg.Omni.Endpoint, cfg.Trust(cfg.Omni.Certificates))
	if err != nil {
		return nil, err
	}

	w := &ways{omni: provider.Way{
		Endpoint: cfg.Omni.Endpoint, Address: address, Options: []client.Option{client.WithGrpcOpts(options...)},
	}}

	if w.silo, err = n.Transport(cfg.Trust(cfg.Oxide.Certificates)); err != nil {
		return nil, err
	}

	if w.factory, err = n.Transport(cfg.Trust(cfg.Factory.Certificates)); err != nil {
		return nil, err
	}

	return w, nil
}

// rackAlone is the way to the rack, for who needs no other.
func rackAlone(cfg config.Config) (*ways, error) {
	silo, err := reach.New().Transport(cfg.Trust(cfg.Oxide.Certificates))

	return &ways{silo: silo}, err
}

// rack makes the client of the rack.
func (w *ways) rack(cfg config.Config, access provider.OxideAccess) (*rack.Client, error) {
	return rack.New(rack.Config{
		Host: access.Host, Token: access.Token, UserAgent: version.UserAgent(), Transport: w.silo,
		Calls: cfg.RackCalls, Changes: cfg.RackChanges,
	})
}

// readAccess reads how the daemon is known at the rack now.
func readAccess(cfg *config.Config) (provider.OxideAccess, error) {
	a, err := cfg.ReadOxide()
	if err != nil {
		return provider.OxideAccess{}, fmt.Errorf("reading how the daemon is known at the rack: %w", err)
	}

	return provider.OxideAccess{Host: a.Host, Token: a.Token.Reveal(), Expires: a.Expires}, nil
}

// followed are the credentials that come from files, which may change.
func followed(cfg *config.Config) provider.Credentials {
	c := provider.Credentials{
		JudgeOmniKey: func(key string) (time.Time, error) { return cfg.JudgeOmniKey(config.Secret(key), time.Now()) },
		OmniKeyFrom:  cfg.Omni.KeyFile, OxideFrom: cfg.OxideFile(),
	}

	if c.OmniKeyFrom != "" {
		c.OmniKey = func() (string, error) {
			key, err := cfg.ReadOmniKey()

			return key.Reveal(), err
		}
	}

	if c.OxideFrom != "" {
		c.Oxide = func() (provider.OxideAccess, error) { return readAccess(cfg) }
	}

	return c
}
