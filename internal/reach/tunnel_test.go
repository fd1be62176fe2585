package reach

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/client"
	omniclient "github.com/siderolabs/omni/client/pkg/client/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/system"
	"golang.org/x/net/http/httpproxy"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/edge"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

// omniBehind is a simulated Omni behind TLS at omni.test, and a provider's key.
func omniBehind(t *testing.T, alpn ...string) (*world, string) {
	t.Helper()

	w := newWorld(t)

	o, err := omni.New(omni.Config{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = o.Close() })

	if err := o.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	key, err := o.MintProviderKey(t.Context(), "oxide", time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	cert, err := w.ca.Issue(time.Now().Add(time.Hour), "omni.test")
	if err != nil {
		t.Fatal(err)
	}

	door, err := edge.OpenTLS(t.Context(), strings.TrimPrefix(o.Endpoint(), "grpc://"), cert, alpn...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = door.Close() })

	w.names["omni.test:443"] = door.Address()

	return w, key
}

func (w *world) omni(n *Network, trust Trust, key string) state.State {
	w.t.Helper()

	address, opts, err := n.Tunnel("https://omni.test", trust)
	if err != nil {
		w.t.Fatal(err)
	}

	c, err := client.New(address, client.WithServiceAccount(key), client.WithGrpcOpts(opts...),
		client.WithOmniClientOptions(omniclient.WithProviderID("oxide")))
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(func() { _ = c.Close() })

	return c.Omni().State()
}

// Signed calls and streams of the SDK work over a connection that it takes for
// one without TLS, directly and by a proxy that alone knows the name.
func TestOmniBehindItsOwnCAIsReached(t *testing.T) {
	t.Parallel()

	for name, proxied := range map[string]bool{"directly": false, "by a proxy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w, key := omniBehind(t, "h2")
			proxies := &httpproxy.Config{}

			if proxied {
				proxies.HTTPSProxy = "http://" + w.proxy.Address()
			}

			st := w.omni(w.network(proxies), Trust{PEM: [][]byte{w.ca.PEM()}}, key)

			if _, err := safe.StateGetByID[*system.SysVersion](t.Context(), st, system.SysVersionID); err != nil {
				t.Fatal(err)
			}

			events := make(chan state.Event)
			if err := st.WatchKind(t.Context(), resource.NewMetadata("infra-provider", infra.InfraMachineType, "", resource.VersionUndefined), events,
				state.WithBootstrapContents(true)); err != nil {
				t.Fatal(err)
			}

			if e := <-events; e.Error != nil || e.Type != state.Bootstrapped {
				t.Errorf("the stream begins with %v, %v", e.Type, e.Error)
			}

			if got := w.proxy.Asked()["omni.test:443"] > 0; got != proxied || (len(w.direct) > 0) == proxied {
				t.Errorf("the proxy was asked for %v, without it was dialed %v", w.proxy.Asked(), w.direct)
			}
		})
	}
}

func TestWhatKeepsFromOmniIsTold(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		alpn   []string
		status int
		trust  func(w *world) Trust
		want   string
	}{
		"no HTTP/2": {[]string{"http/1.1"}, 200, func(w *world) Trust { return Trust{PEM: [][]byte{w.ca.PEM()}} }, "no application protocol"},
		"no ALPN":   {nil, 200, func(w *world) Trust { return Trust{PEM: [][]byte{w.ca.PEM()}} }, "not HTTP/2, which gRPC needs"},
		"unknown CA": {[]string{"h2"}, 200, func(w *world) Trust {
			ca, err := edge.NewCA("CA 2")
			if err != nil {
				w.t.Fatal(err)
			}

			return Trust{PEM: [][]byte{ca.PEM()}}
		}, "signed by unknown authority"},
		"a proxy that refuses": {
			[]string{"h2"}, http.StatusForbidden, func(w *world) Trust { return Trust{PEM: [][]byte{w.ca.PEM()}} },
			"refuses the connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w, key := omniBehind(t, c.alpn...)
			w.proxy.Answer(c.status)

			st := w.omni(w.network(&httpproxy.Config{HTTPSProxy: "http://" + w.proxy.Address()}), c.trust(w), key)

			_, err := safe.StateGetByID[*system.SysVersion](t.Context(), st, system.SysVersionID)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Where the system's certificates are enough, the SDK makes the TLS itself.
func TestWithoutAnyCATheSDKIsLeftAlone(t *testing.T) {
	t.Parallel()

	for _, endpoint := range []string{"https://omni.test", "grpc://omni.test:8099"} {
		trust := Trust{}
		if strings.HasPrefix(endpoint, "grpc") {
			trust.Insecure = true
		}

		address, opts, err := New().Tunnel(endpoint, trust)
		if err != nil || address != endpoint || len(opts) > 0 {
			t.Errorf("%s: %s with %d options, %v", endpoint, address, len(opts), err)
		}
	}
}
