package main

import (
	"crypto/tls"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/edge"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// door is an endpoint behind TLS with a certificate of a CA of its own.
type door struct {
	address string
	ca      string // its file
}

func openDoor(t *testing.T, target, host string, alpn ...string) door {
	t.Helper()

	ca, err := edge.NewCA("CA of " + host)
	if err != nil {
		t.Fatal(err)
	}

	var cert tls.Certificate
	if cert, err = ca.Issue(time.Now().Add(time.Hour), host); err != nil {
		t.Fatal(err)
	}

	d, err := edge.OpenTLS(t.Context(), target, cert, alpn...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = d.Close() })

	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}

	return door{d.Address(), file}
}

func hostPort(t *testing.T, address string) string {
	t.Helper()

	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}

	return u.Host
}

// Rule: each of the three endpoints may have a CA of its own, and a proxy that must
// be used for two of them is not used for the third; whichever CA is missing, it is
// told at which endpoint and how to give it.
func TestEachEndpointHasItsCAAndItsWay(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	omni := openDoor(t, hostPort(t, p.Omni.Endpoint()), "omni.test", "h2")
	factory := openDoor(t, hostPort(t, p.Factory.URL()), "factory.test", "http/1.1")
	silo := openDoor(t, hostPort(t, p.RackURL), "127.0.0.1", "http/1.1")

	// Only the proxy knows the names.
	proxy, err := edge.OpenProxy(t.Context(), map[string]string{"omni.test:443": omni.address, "factory.test:443": factory.address})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = proxy.Close() })

	full := func() map[string]string {
		env := p.env("oxide")
		env["OMNI_ENDPOINT"], env["OMNI_CA_FILE"] = "https://omni.test", omni.ca
		env["OXIDE_HOST"], env["OXIDE_CA_FILE"] = "https://"+silo.address, silo.ca
		env["IMAGE_FACTORY_URL"], env["IMAGE_FACTORY_CA_FILE"] = "https://factory.test", factory.ca
		env["HTTPS_PROXY"] = "http://" + proxy.Address()

		return env
	}

	for option, told := range map[string]string{
		"OMNI_CA_FILE":  "the certificate of Omni at https://omni.test is not trusted: its certificate is signed by an unknown authority: give its CA with OMNI_CA_FILE",
		"OXIDE_CA_FILE": "its certificate is signed by an unknown authority: give its CA with OXIDE_CA_FILE",
	} {
		env := full()
		env[option] = factory.ca
		d := start(t, env)
		p.says(d, false, told)

		if code := d.stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}

	env := full()
	env["IMAGE_FACTORY_CA_FILE"] = silo.ca
	d := start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.eventually("the request to name the factory", func() bool {
		for _, r := range p.requests() {
			if strings.Contains(r.Status, "image factory factory.test: ") && strings.Contains(r.Status, "its certificate is signed by an unknown authority") {
				return true
			}
		}

		return false
	})

	p.eventually("the log to say how to give its CA", func() bool { return strings.Contains(d.log(), "give its CA with IMAGE_FACTORY_CA_FILE") })

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	d = start(t, full())
	p.waitJoined("workers", 1)
	p.set("workers", "oxide", 0)
	p.waitNothingLeft()

	asked := proxy.Asked()
	if asked["omni.test:443"] == 0 || asked["factory.test:443"] == 0 || asked[silo.address] > 0 {
		t.Errorf("the proxy was asked for %v", asked)
	}

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
