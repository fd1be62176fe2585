package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// reachFactory finds the factory and proves the way to it.
func (e *exam) reachFactory(ctx context.Context) {
	e.factory = e.Config.Config.Factory.URL

	if e.factory == "" {
		if e.omni == nil {
			e.skip("reach factory", "Omni names the factory, and can not be asked")

			return
		}

		base, err := e.omni.FactoryURL(ctx)
		if err != nil {
			e.fail("reach factory", "Omni does not name the image factory: "+err.Error(), "see Omni, or give one with IMAGE_FACTORY_URL")

			return
		}

		e.factory = base
	}

	e.reach(ctx, atFactory, "the image factory", e.factory)
}

// maxVersions is more than the list of all versions takes.
const maxVersions = 1 << 20

// factoryServes has the factory say which versions it has images of.
func (e *exam) factoryServes(ctx context.Context) {
	const check = "factory"

	if !e.reached[atFactory] {
		e.skip(check, "the image factory can not be asked")

		return
	}

	certificates, _ := e.certificates(atFactory)

	t, err := e.Network.Transport(e.Config.Config.Trust(certificates))
	if err != nil {
		e.fail(check, err.Error(), "")

		return
	}

	defer t.CloseIdleConnections()

	text, status, err := e.versions(ctx, t)

	var all []string

	switch {
	case err != nil:
		e.fail(check, "the image factory at "+e.factory+" does not answer: "+err.Error(), "see its address, or wait")
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		e.fail(check, fmt.Sprintf("the image factory at %s refuses the credentials (HTTP %d)", e.factory, status),
			"give IMAGE_FACTORY_TOKEN, or IMAGE_FACTORY_USERNAME and IMAGE_FACTORY_PASSWORD")
	case status != http.StatusOK, json.Unmarshal(text, &all) != nil:
		e.fail(check, fmt.Sprintf("what answers at %s is no image factory (HTTP %d)", e.factory, status), "see IMAGE_FACTORY_URL")
	default:
		e.supported(check, all)
	}
}

func (e *exam) versions(ctx context.Context, t http.RoundTripper) (text []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(e.factory, "/")+"/versions", nil)
	if err != nil {
		return nil, 0, err
	}

	for key, values := range e.Config.Config.Factory.Header() {
		req.Header[key] = values
	}

	req.Header.Set("User-Agent", version.UserAgent())

	resp, err := t.RoundTrip(req)
	if err != nil {
		// Without the address, which may hold credentials.
		if u, ok := err.(*url.Error); ok { //nolint:errorlint // as RoundTrip gives it
			err = u.Err
		}

		return nil, 0, err
	}

	defer resp.Body.Close() //nolint:errcheck // only read from

	text, err = io.ReadAll(io.LimitReader(resp.Body, maxVersions))

	return text, resp.StatusCode, err
}

func (e *exam) supported(check string, all []string) {
	usable := 0

	for _, text := range all {
		if v, err := talos.ParseVersion(strings.TrimPrefix(text, "v")); err == nil && v.Supported() == nil {
			usable++
		}
	}

	if usable == 0 {
		e.fail(check, fmt.Sprintf("the image factory at %s has no Talos %s or later among its %d versions", e.factory, version.MinimumTalos, len(all)),
			"update it, or name another one with IMAGE_FACTORY_URL")

		return
	}

	e.ok(check, "it has %d versions of Talos that can be used", usable)
}
