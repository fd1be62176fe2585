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
	image, err := s.locate(ctx, id)
	if err != nil {
		return nil, err
	}

	stream, err := s.Factory.Open(ctx, image)
	if err != nil {
		return nil, err
	}

	return stream, nil
}

// locate answers where the image is at this moment.
func (s FactorySource) locate(ctx context.Context, id naming.ImageIdentity) (talos.ImageURL, error) {
	a, err := s.Address(ctx)
	if err != nil {
		return talos.ImageURL{}, fmt.Errorf("asking for the address of the image factory: %w", err)
	}

	base, err := url.Parse(a.Base)
	if err != nil {
		return talos.ImageURL{}, errors.New("the address of the image factory is malformed")
	}

	// The factory is part of the identity: another one may build another image
	// for the same schematic ID.
	if !strings.EqualFold(base.Host, id.FactoryHost) {
		return talos.ImageURL{}, &MendError{Reason: fmt.Sprintf("the image factory is now %s and the image was planned from %s: delete the request, Omni makes a new one",
			base.Host, id.FactoryHost)}
	}

	return talos.ImageURL{
		Base: a.Base, Schematic: id.Schematic, Talos: id.Talos, Arch: id.Arch, SecureBoot: id.SecureBoot, Header: a.Header,
		Again: func(ctx context.Context) (talos.ImageURL, error) { return s.locate(ctx, id) },
	}, nil
}
