package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// Invariant: images come from the factory that Omni names, with its port, and
// from no other; its CA is trusted by configuration, and what it redirects to is
// not told the credentials.
func TestOnlyOmnisFactoryIsUsed(t *testing.T) {
	t.Parallel()

	const token = "of-the-private-factory"

	p := newPlace(t, site.Config{})

	var asked, redirected atomic.Int32

	// Where the factory redirects to, on another port and with TLS too: from https
	// to http nobody is followed.
	storage := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		redirected.Add(1)

		if got := r.In.Header.Get("Authorization"); got != "" {
			t.Errorf("the object storage is told the credentials %q", got)
		}

		r.SetURL(address(t, p.Factory.StorageURL()))
	}})
	t.Cleanup(storage.Close)

	private := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			asked.Add(1)

			if got := r.In.Header.Get("Authorization"); got != "Bearer "+token {
				t.Errorf("the factory is asked for %s with the credentials %q", r.In.URL.Path, got)
			}

			r.SetURL(address(t, p.Factory.URL()))
			r.Out.Header.Del("Authorization")
		},
		ModifyResponse: func(r *http.Response) error {
			if to, ok := strings.CutPrefix(r.Header.Get("Location"), p.Factory.StorageURL()); ok {
				r.Header.Set("Location", storage.URL+to)
			}

			return nil
		},
	})
	t.Cleanup(private.Close)

	p.Factory.Inject(factory.Fault{Kind: factory.KindRedirect})

	if _, err := safe.StateUpdateWithConflicts(t.Context(), p.Omni.AdminState(), omni.NewFeaturesConfig(omni.FeaturesConfigID).Metadata(),
		func(r *omni.FeaturesConfig) error {
			r.TypedSpec().Value.ImageFactoryBaseUrl = private.URL

			return nil
		}); err != nil {
		t.Fatal(err)
	}

	env := p.env("oxide")
	env["IMAGE_FACTORY_TOKEN"] = token
	env["IMAGE_FACTORY_CA_FILE"] = p.file("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: private.Certificate().Raw}))

	start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)

	if asked.Load() == 0 || redirected.Load() == 0 {
		t.Errorf("the factory was asked %d times and redirected %d times", asked.Load(), redirected.Load())
	}

	want := naming.ImageIdentity{FactoryHost: strings.TrimPrefix(private.URL, "https://")}.Mark().Factory
	if mark, _ := naming.Parse(p.inventory().SiloImages[0].Description); mark.Image.Factory != want {
		t.Errorf("the image is marked as of factory %s, not %s", mark.Image.Factory, want)
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()
}

func address(t *testing.T, text string) *url.URL {
	t.Helper()

	u, err := url.Parse(text)
	if err != nil {
		t.Error(err)

		return &url.URL{}
	}

	return u
}
