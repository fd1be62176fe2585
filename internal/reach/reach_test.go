package reach

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http/httpproxy"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/edge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is names that lead to doors on loopback, a proxy that knows the same
// names, and a record of what was dialed without it.
type world struct {
	t      *testing.T
	ca     *edge.CA
	names  map[string]string
	proxy  *edge.Proxy
	direct []string
}

// newWorld has one server behind a door with TLS for each host.
func newWorld(t *testing.T, hosts ...string) *world {
	t.Helper()

	ca, err := edge.NewCA("CA 1")
	if err != nil {
		t.Fatal(err)
	}

	w := &world{t: t, ca: ca, names: map[string]string{}}

	for _, h := range hosts {
		cert, err := ca.Issue(time.Now().Add(time.Hour), h)
		if err != nil {
			t.Fatal(err)
		}

		w.serve(h, cert)
	}

	if w.proxy, err = edge.OpenProxy(t.Context(), w.names); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = w.proxy.Close() })

	return w
}

func (w *world) serve(host string, cert tls.Certificate) {
	w.t.Helper()

	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(rw, host) }))
	w.t.Cleanup(srv.Close)

	door, err := edge.OpenTLS(w.t.Context(), srv.Listener.Addr().String(), cert)
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(func() { _ = door.Close() })

	w.names[host+":443"] = door.Address()
}

// network reaches all names directly, and the proxy by its address.
func (w *world) network(proxies *httpproxy.Config) *Network {
	return With(proxies, func(ctx context.Context, network, address string) (net.Conn, error) {
		target := address
		if known := w.names[address]; known != "" {
			w.direct = append(w.direct, address)
			target = known
		}

		return (&net.Dialer{}).DialContext(ctx, network, target)
	})
}

func (w *world) get(n *Network, trust Trust, url string) (string, error) {
	w.t.Helper()

	transport, err := n.Transport(trust)
	if err != nil {
		w.t.Fatal(err)
	}

	defer transport.CloseIdleConnections()

	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}

	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}

	defer resp.Body.Close()

	var b strings.Builder

	buf := make([]byte, 100)
	n2, _ := resp.Body.Read(buf)
	b.Write(buf[:n2])

	return b.String(), nil
}

// A proxy is used for what is outside, and not for what NO_PROXY names.
func TestAProxyIsUsedForOneAndNotForAnother(t *testing.T) {
	t.Parallel()

	w := newWorld(t, "omni.test", "rack.test")
	n := w.network(&httpproxy.Config{HTTPSProxy: "http://ann:secret@" + w.proxy.Address(), NoProxy: "rack.test"})
	trust := Trust{PEM: [][]byte{w.ca.PEM()}}

	for _, host := range []string{"omni.test", "rack.test"} {
		if body, err := w.get(n, trust, "https://"+host); err != nil || body != host {
			t.Errorf("%s: %q, %v", host, body, err)
		}
	}

	if asked := w.proxy.Asked(); !maps.Equal(asked, map[string]int{"omni.test:443": 1}) {
		t.Errorf("the proxy was asked for %v", asked)
	}

	if len(w.direct) != 1 || w.direct[0] != "rack.test:443" {
		t.Errorf("without the proxy: %v", w.direct)
	}

	if got := w.proxy.Headers()[0].Get("Proxy-Authorization"); got != "Basic YW5uOnNlY3JldA==" {
		t.Errorf("the proxy was told %q", got)
	}
}

// What is wrong is told in one line, in words that do not come from a library,
// and without the proxy's password.
func TestWhatIsWrongIsToldByItsCause(t *testing.T) {
	t.Parallel()

	w := newWorld(t, "rack.test")

	other, err := edge.NewCA("CA 2")
	if err != nil {
		t.Fatal(err)
	}

	wrongName, err := w.ca.Issue(time.Now().Add(time.Hour), "other.test")
	if err != nil {
		t.Fatal(err)
	}

	expired, err := w.ca.Issue(time.Now().Add(-time.Minute), "expired.test")
	if err != nil {
		t.Fatal(err)
	}

	w.serve("wrong.test", wrongName)
	w.serve("expired.test", expired)

	own, foreign := Trust{PEM: [][]byte{w.ca.PEM()}}, Trust{PEM: [][]byte{other.PEM()}}
	none := &httpproxy.Config{}
	proxied := &httpproxy.Config{HTTPSProxy: "http://ann:secret@" + w.proxy.Address()}
	nobody := &httpproxy.Config{HTTPSProxy: "http://ann:secret@127.0.0.1:1"}

	for _, c := range []struct {
		proxies *httpproxy.Config
		status  int
		trust   Trust
		host    string
		want    string
	}{
		{none, 200, own, "rack.test", ""},
		{none, 200, Trust{}, "rack.test", "its certificate is signed by an unknown authority: give its CA with OXIDE_CA_FILE"},
		{none, 200, foreign, "rack.test", "its certificate is signed by an unknown authority: give its CA with OXIDE_CA_FILE"},
		{none, 200, Trust{Insecure: true}, "rack.test", ""},
		{none, 200, own, "wrong.test", "its certificate is for other.test, not for wrong.test"},
		{none, 200, own, "expired.test", "its certificate has expired at "},
		{proxied, 403, own, "rack.test", "the proxy " + w.proxy.Address() + " refuses the connection: 403 Forbidden"},
		{proxied, 407, own, "rack.test", "the proxy " + w.proxy.Address() + " refuses the connection: 407 Proxy Authentication Required"},
		{nobody, 200, own, "rack.test", "the proxy can not be reached: dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		w.proxy.Answer(c.status)

		_, err := w.get(w.network(c.proxies), c.trust, "https://"+c.host)

		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.host, err)
		case c.want == "":
		case err == nil:
			t.Errorf("%s is reached, and not %q", c.host, c.want)
		default:
			if _, got := Cause(err.Error(), "OXIDE_CA_FILE"); !strings.HasPrefix(got, c.want) || strings.Contains(got, "secret") {
				t.Errorf("%s:\n got %q\nwant %q\n  of %v", c.host, got, c.want, err)
			}
		}
	}
}
