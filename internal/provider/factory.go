package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	factory "github.com/siderolabs/image-factory/pkg/client"
	"github.com/siderolabs/image-factory/pkg/schematic"
	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/constants"
	"github.com/siderolabs/omni/client/pkg/infra/imagefactory"
	"github.com/siderolabs/omni/client/pkg/infra/provision"
	omnires "github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

// factories finds the image factory.
type factories struct {
	url    string // the one that was configured, if any
	access func() http.Header
	clear  bool // credentials may go without TLS
	state  func() state.State
}

func (d *Daemon) factories() factories {
	return factories{url: d.opts.FactoryURL, access: d.opts.FactoryAccess, clear: d.opts.FactoryClear, state: d.state}
}

// factoryAddress is the factory with the credentials of this moment.
func (d *Daemon) factoryAddress(ctx context.Context) (image.Address, error) {
	return d.factories().address(ctx)
}

// factoryURL is where images come from: what was configured, else what Omni
// says, else the public factory. It is asked at each use, as it may move.
func (d *Daemon) factoryURL(ctx context.Context) (string, error) {
	base, _, err := d.factories().find(ctx)

	return base, err
}

// find says also whether somebody has named the factory.
func (f factories) find(ctx context.Context) (base string, named bool, err error) {
	if f.url != "" {
		return f.url, true, nil
	}

	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	features, err := safe.StateGetByID[*omnires.FeaturesConfig](ctx, f.state(), omnires.FeaturesConfigID)
	if err != nil {
		return "", false, fmt.Errorf("reading Omni's features: %w", err)
	}

	if base := features.TypedSpec().Value.GetImageFactoryBaseUrl(); base != "" {
		return base, true, nil
	}

	return constants.ImageFactoryBaseURL, false, nil
}

// address is the factory with the credentials of this moment. They are
// for the factory that was configured or that Omni names: the public one, which
// nobody has named, gets none, and neither does one that would be told them in
// clear.
func (f factories) address(ctx context.Context) (image.Address, error) {
	base, named, err := f.find(ctx)
	if err != nil || !named || f.access == nil {
		return image.Address{Base: base}, err
	}

	header := f.access()
	if header != nil && !f.clear && inClear(base) {
		return image.Address{}, &image.MendError{Reason: "the image factory that Omni names begins with http://, " +
			"where its credentials could be read on their way: give it https://, or allow it with IMAGE_FACTORY_INSECURE"}
	}

	return image.Address{Base: base, Header: header}, nil
}

// inClear says that what is sent to the address can be read by others.
func inClear(address string) bool {
	u, err := url.Parse(address)

	return err != nil || u.Scheme == "http" && !strings.HasPrefix(u.Hostname(), "127.") && u.Hostname() != "localhost" && u.Hostname() != "::1"
}

// schematicClient registers schematics through Omni, or directly at the factory
// where Omni is too old for that.
func (d *Daemon) schematicClient(ctx context.Context, c *client.Client, version string) (provision.FactoryClient, error) { //nolint:ireturn // one of two
	v, err := semver.ParseTolerant(strings.TrimPrefix(version, "v"))
	if err != nil || v.GTE(semver.Version{Major: 1, Minor: 9}) {
		return imagefactory.NewProxiedClient(c)
	}

	address, err := d.factoryAddress(ctx)
	if err != nil {
		return nil, err
	}

	base, err := url.Parse(address.Base)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the image factory: %w", err)
	}

	direct, err := factory.New(address.Base, factory.WithClient(http.Client{
		Transport: known{next: d.opts.Factory.Transport(), host: base.Host, header: address.Header},
	}))
	if err != nil {
		return nil, fmt.Errorf("making the image factory's client: %w", err)
	}

	return directSchematics{direct}, nil
}

// directSchematics registers schematics at the factory itself.
type directSchematics struct{ client *factory.Client }

// EnsureSchematic implements provision.FactoryClient.
func (s directSchematics) EnsureSchematic(ctx context.Context, want schematic.Schematic) (string, error) {
	id, _, err := s.client.SchematicCreate(ctx, want)
	if err != nil {
		return "", fmt.Errorf("registering the schematic at the image factory: %w", err)
	}

	return id, nil
}

// known adds the credentials to requests to the factory, and to no others.
type known struct {
	next   http.RoundTripper
	host   string
	header http.Header
}

// RoundTrip implements http.RoundTripper.
func (k known) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host == k.host {
		req = req.Clone(req.Context())
		maps.Copy(req.Header, k.header)
	}

	return k.next.RoundTrip(req)
}
