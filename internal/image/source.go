package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// Address is where the image factory is at this moment.
type Address struct {
	// Base is scheme://host[:port][/prefix].
	Base string
	// Header holds credentials; it is sent to no other host.
	Header http.Header
}

// FactorySource reads images from an image factory. The address is asked for
// at each try, since credentials in it may be short-lived.
type FactorySource struct {
	Factory *talos.Factory
	Address func(ctx context.Context) (Address, error)
}

// Open implements Source.
func (s FactorySource) Open(ctx context.Context, id naming.ImageIdentity) (Stream, error) {
	a, err := s.Address(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the address of the image factory: %w", err)
	}

	base, err := url.Parse(a.Base)
	if err != nil {
		return nil, errors.New("the address of the image factory is malformed")
	}

	// The factory is part of the identity: another one may build another image
	// for the same schematic ID.
	if !strings.EqualFold(base.Host, id.FactoryHost) {
		return nil, &MendError{Reason: fmt.Sprintf("the image factory is now %s and the image was planned from %s: delete the request, Omni makes a new one",
			base.Host, id.FactoryHost)}
	}

	stream, err := s.Factory.Open(ctx, talos.ImageURL{
		Base: a.Base, Schematic: id.Schematic, Talos: id.Talos, Arch: id.Arch, SecureBoot: id.SecureBoot, Header: a.Header,
	})
	if err != nil {
		return nil, err
	}

	return stream, nil
}
