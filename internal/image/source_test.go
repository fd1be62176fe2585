package image_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// Invariant: an image comes from the factory in its identity, at the address of
// this moment and with its credentials, or not at all.
func TestTheFactoryOfTheIdentityIsAsked(t *testing.T) {
	t.Parallel()

	var path, auth string

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, auth = r.URL.Path, r.Header.Get("Authorization")
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer server.Close()

	f := talos.NewFactory(talos.FactoryConfig{})
	defer f.Close()

	source := image.FactorySource{Factory: f, Address: func(context.Context) (image.Address, error) {
		return image.Address{Base: server.URL + "/prefix", Header: http.Header{"Authorization": {"Bearer secret"}}}, nil
	}}

	if _, err := source.Open(t.Context(), identity()); err == nil || !strings.Contains(err.Error(), "planned from factory.talos.dev") || path != "" {
		t.Errorf("%v, asked for %q", err, path)
	}

	id := identity()
	id.FactoryHost = strings.TrimPrefix(server.URL, "http://")
	_, err := source.Open(t.Context(), id)

	if e, ok := errors.AsType[*talos.FactoryError](err); !ok || e.Status != http.StatusBadGateway {
		t.Error(err)
	}

	if path != "/prefix/image/"+id.Schematic+"/v1.13.5/nocloud-amd64.raw.zst" || auth != "Bearer secret" {
		t.Errorf("asked for %q with %q", path, auth)
	}
}

func TestNoAddress(t *testing.T) {
	t.Parallel()

	away := errors.New("Omni is away")
	source := image.FactorySource{Address: func(context.Context) (image.Address, error) { return image.Address{}, away }}

	if _, err := source.Open(t.Context(), identity()); !errors.Is(err, away) {
		t.Error(err)
	}
}
