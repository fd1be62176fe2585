package doctor

import (
	"context"
	"encoding/json"
	"errors"
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
		e.skip(check, noFactory)

		return
	}

	text, status, err := e.askFactory(ctx, "/versions")

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

		return
	}

	e.reached[atFactory] = false
}

const noFactory = "the image factory can not be asked"

// emptySchematic is the ID of the schematic that asks for nothing, with every
// factory that has no users.
const emptySchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// factorySchematic reads a schematic, which shows that those are served without
// registering one. Omni registers all of them, at the factory that it uses.
func (e *exam) factorySchematic(ctx context.Context) {
	const check = "schematics"

	if !e.reached[atFactory] {
		e.skip(check, noFactory)

		return
	}

	_, status, err := e.askFactory(ctx, "/schematics/"+emptySchematic)

	switch {
	case err != nil:
		e.fail(check, "the image factory at "+e.factory+" does not answer for schematics: "+err.Error(), "see its log, or wait")
	case status == http.StatusOK:
		e.ok(check, "the image factory knows the empty one")
	case status >= http.StatusInternalServerError, status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.fail(check, fmt.Sprintf("the image factory at %s does not serve schematics (HTTP %d)", e.factory, status), "see its log, and whether it wants other credentials")
	default:
		e.unknownSchematic(ctx, check, status)
	}
}

// unknownSchematic judges that a factory does not know the empty schematic, which
// may be new, or another one than that at which Omni registers them.
func (e *exam) unknownSchematic(ctx context.Context, check string, status int) {
	text := fmt.Sprintf("the image factory at %s does not know the empty one (HTTP %d)", e.factory, status)

	if e.Config.Config.Factory.URL != "" && e.omni != nil {
		if omnis, err := e.omni.FactoryURL(ctx); err == nil && strings.TrimSuffix(omnis, "/") != strings.TrimSuffix(e.factory, "/") {
			e.fail(check, text+", and Omni registers schematics at "+omnis, "name the factory that Omni uses with IMAGE_FACTORY_URL, or none")

			return
		}
	}

	e.note(check, text+": it may be new, or can not be asked", "")
}

// askFactory reads from the factory, with the daemon's credentials.
func (e *exam) askFactory(ctx context.Context, path string) (text []byte, status int, err error) {
	certificates, _ := e.certificates(atFactory)

	t, err := e.Network.Transport(e.Config.Config.Trust(certificates))
	if err != nil {
		return nil, 0, err
	}

	defer t.CloseIdleConnections()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(e.factory, "/")+path, nil)
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
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}

		return nil, 0, err
	}

	text, err = io.ReadAll(io.LimitReader(resp.Body, maxVersions))

	return text, resp.StatusCode, errors.Join(err, resp.Body.Close())
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
