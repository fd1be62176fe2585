package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/cosi-project/runtime/pkg/state"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// ImportOptions are what a person's import is made of.
type ImportOptions struct {
	Rack    *rack.Client
	Factory *talos.Factory
	// FactoryURL, FactoryAccess and FactoryClear are those of the daemon.
	FactoryURL    string
	FactoryAccess func() http.Header
	FactoryClear  bool
	// File is what to read instead of asking the factory.
	File  string
	Scope image.Scope
	// Identity lacks the factory's host if it is to be the daemon's.
	Identity naming.ImageIdentity
	// Project is the name or ID of the project that the upload goes through.
	Project string
	Logger  *zap.Logger
}

// Import brings an image for a person, as the daemon would and safely beside it:
// under a run of its own, whose record tells every daemon that it lives. It
// returns when the image is there and what it took is undone, or left to a
// daemon that finds the record.
func (c *Connection) Import(ctx context.Context, opts ImportOptions, tell func(image.JobInfo)) (image.Status, error) {
	owner, err := c.Owner(ctx)
	if err != nil {
		return image.Status{}, err
	}

	project, err := opts.Rack.ViewProject(ctx, opts.Project)
	if err != nil {
		return image.Status{}, missing(err, "--project: %q is not in the silo, or the token has no role in it", opts.Project)
	}

	find := factories{
		url: opts.FactoryURL, access: opts.FactoryAccess, clear: opts.FactoryClear,
		state: func() state.State { return c.state },
	}

	want := image.Want{Identity: opts.Identity, ProjectID: project.Id, Scope: opts.Scope}
	if want.Identity.FactoryHost == "" {
		if want.Identity.FactoryHost, err = find.host(ctx); err != nil {
			return image.Status{}, err
		}
	}

	run := naming.NewRun()

	var source image.Source = image.FactorySource{Factory: opts.Factory, Address: find.address}
	if opts.File != "" {
		source = image.FileSource{Path: opts.File}
	}

	m := image.New(image.Config{
		Rack: opts.Rack, Source: source, Runs: &Runs{State: func() state.State { return c.state }, ID: run},
		Log: opts.Logger, Owner: owner, Provider: providerID(), Run: run, Uploads: 1,
	})

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)

	go func() { ended <- m.Run(running) }()

	status, err := m.Bring(ctx, want, tell)
	if err == nil {
		err = c.used(ctx, status.ImageID, "")
	}

	// Ending it is what undoes the scratch of an import that was given up.
	stop()

	return status, errors.Join(err, <-ended)
}

// host is that of the factory, as it stands in the identity of images.
func (f factories) host(ctx context.Context) (string, error) {
	base, _, err := f.find(ctx)
	if err != nil {
		return "", err
	}

	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("the image factory's address %q is no URL", base)
	}

	return u.Host, nil
}
