package main

import (
	"net/http"

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

// rack makes the client of the rack.
func (w *ways) rack(cfg config.Config) (*rack.Client, error) {
	return rack.New(rack.Config{
		Host: cfg.Oxide.Host, Token: cfg.Oxide.Token.Reveal(), Profile: cfg.Oxide.Profile, ConfigDir: cfg.Oxide.ConfigDir,
		UserAgent: version.UserAgent(), Transport: w.silo,
	})
}
