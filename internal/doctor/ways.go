package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

// The endpoints.
const (
	atOmni    = "omni"
	atRack    = "rack"
	atFactory = "factory"
)

// certificates are the options that say whom an endpoint is trusted by.
func (e *exam) certificates(of string) (c config.Certificates, option string) {
	switch of {
	case atOmni:
		return e.Config.Config.Omni.Certificates, "OMNI_CA_FILE"
	case atRack:
		return e.Config.Config.Oxide.Certificates, "OXIDE_CA_FILE"
	default:
		return e.Config.Config.Factory.Certificates, "IMAGE_FACTORY_CA_FILE"
	}
}

// proxies says by which proxy each endpoint is reached.
func (e *exam) proxies(context.Context) {
	if name := reach.WrongProxy(e.Environment); name != "" {
		e.fail("proxy", "the proxy's address in "+name+" can not be read, so none is used", "give it as http://HOST:PORT")

		return
	}

	var through []string

	for _, at := range []struct{ name, url string }{
		{"Omni", e.Config.Config.Omni.Endpoint}, {"the rack", e.Rack.Host()}, {"the image factory", e.Config.Config.Factory.URL},
	} {
		if at.url == "" {
			continue
		}

		proxy, err := e.Network.Proxy(at.url)
		if err != nil {
			e.fail("proxy", "the proxy's address in the environment can not be read", "see HTTPS_PROXY and HTTP_PROXY: http://HOST:PORT")

			return
		}

		if proxy != nil {
			through = append(through, at.name+" by "+proxy.Host)
		}
	}

	if len(through) == 0 {
		e.ok("proxy", "none is used")
	} else {
		e.ok("proxy", "%s", strings.Join(through, ", "))
	}
}

const (
	// clockFails is how far Omni lets the clocks differ, clockNotes what a host
	// that keeps its clock does not reach.
	clockFails = 5 * time.Minute
	clockNotes = 30 * time.Second
)

// clocks compares this host's clock with those of whoever answers HTTP. It trusts
// any certificate for that, as it sends nothing and believes little.
func (e *exam) clocks(ctx context.Context) {
	t, err := e.Network.Transport(reach.Trust{Insecure: true})
	if err != nil {
		e.skip("clocks", err.Error())

		return
	}

	defer t.CloseIdleConnections()

	for _, at := range []struct{ name, url string }{{"the rack", e.Rack.Host()}, {"Omni", e.Config.Config.Omni.Endpoint}} {
		there, asked, ok := date(ctx, t, at.url)
		if !ok {
			continue
		}

		off := e.Now().Sub(there) - time.Since(asked)/2

		switch text := fmt.Sprintf("this host's clock is %s %s that of %s", off.Abs().Round(time.Second), ahead(off), at.name); {
		case off.Abs() > clockFails:
			e.fail("clocks", text+", and Omni allows 5 minutes", "set the clock, best by NTP")
		case off.Abs() > clockNotes:
			e.note("clocks", text, "set the clock, best by NTP")
		default:
			e.ok("clocks", "this host's clock agrees with that of %s", at.name)
		}

		return
	}

	e.skip("clocks", "nobody who was asked told the time")
}

func ahead(off time.Duration) string {
	if off < 0 {
		return "behind"
	}

	return "ahead of"
}

// date is when a server has answered by its own clock, and when it was asked by
// ours.
func date(ctx context.Context, t http.RoundTripper, endpoint string) (there, asked time.Time, ok bool) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return time.Time{}, time.Time{}, false
	}

	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodHead, u.String(), nil)
	if err != nil {
		return time.Time{}, time.Time{}, false
	}

	asked = time.Now()

	resp, err := t.RoundTrip(req)
	if err != nil {
		return time.Time{}, time.Time{}, false
	}

	_ = resp.Body.Close()
	there, err = http.ParseTime(resp.Header.Get("Date"))

	return there, asked, err == nil
}

func (e *exam) reachOmni(ctx context.Context) {
	e.reach(ctx, atOmni, "Omni", e.Config.Config.Omni.Endpoint)
}

func (e *exam) reachRack(ctx context.Context) { e.reach(ctx, atRack, "the rack", e.Rack.Host()) }

// reach proves name, connection and certificate of an endpoint.
func (e *exam) reach(ctx context.Context, at, name, endpoint string) {
	check := "reach " + at

	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		e.fail(check, fmt.Sprintf("%s is at %q, which is no URL", name, endpoint), "see its address")

		return
	}

	certificates, option := e.certificates(at)

	if err := e.Network.Probe(ctx, endpoint, e.Config.Config.Trust(certificates)); err != nil {
		what, mend := reach.Explain(err, name+" at "+u.Host, option)
		e.fail(check, what, mend)

		return
	}

	e.reached[at] = true

	switch {
	case u.Scheme != "https":
		e.ok(check, "%s answers at %s, without TLS", name, u.Host)
	case certificates.Insecure:
		e.note(check, fmt.Sprintf("%s answers at %s, and any certificate would do", name, u.Host), "turn the insecure switch off")
	default:
		e.ok(check, "%s answers at %s, its certificate is good", name, u.Host)
	}
}
