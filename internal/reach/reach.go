// Package reach is the way to Omni, to the rack and to the image factory:
// which certificates are trusted there, and which proxy leads there.
//
// All three obey HTTPS_PROXY, HTTP_PROXY and NO_PROXY. The rack and the factory
// are reached by Go's HTTP client, Omni by its SDK's, which can not be told of a
// CA: where one is needed, Tunnel makes the connection itself and gives it to the
// SDK as one without TLS.
package reach

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// Trust says whose certificates are taken for good at one endpoint.
type Trust struct {
	// PEM are bundles of CA certificates, beside the system's.
	PEM [][]byte
	// Insecure takes any certificate for good.
	Insecure bool
}

// plain says that the system decides alone.
func (t Trust) plain() bool { return len(t.PEM) == 0 && !t.Insecure }

// config is nil when the system decides alone.
func (t Trust) config() (*tls.Config, error) {
	if t.plain() {
		return nil, nil //nolint:nilnil // nil is Go's own configuration
	}

	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificates: %w", err)
	}

	for _, bundle := range t.PEM {
		if !pool.AppendCertsFromPEM(bundle) {
			return nil, errors.New("reading CA certificates: none in the bundle")
		}
	}

	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: pool,
		InsecureSkipVerify: t.Insecure, //nolint:gosec // somebody has asked for it, and is warned
	}, nil
}

// Network makes connections.
type Network struct {
	proxy func(*url.URL) (*url.URL, error)
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// New makes connections as the environment says at this moment.
func New() *Network { return With(httpproxy.FromEnvironment(), nil) }

// With makes connections by the proxies and by dial; nil is Go's own.
func With(proxies *httpproxy.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Network {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}

	return &Network{proxy: proxies.ProxyFunc(), dial: dial}
}

// Transport is for HTTP.
func (n *Network) Transport(trust Trust) (*http.Transport, error) {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the default HTTP transport was replaced")
	}

	config, err := trust.config()
	if err != nil {
		return nil, err
	}

	t := base.Clone()
	t.DialContext, t.TLSClientConfig = n.dial, config
	t.Proxy = func(req *http.Request) (*url.URL, error) { return n.proxy(req.URL) }
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, req *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}

		return &refusal{proxy: proxy.Host, target: req.Host, status: resp.Status}
	}

	return t, nil
}

// HTTP1 has a transport that is not in use yet speak HTTP/1.1 only.
func HTTP1(t *http.Transport) {
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)

	// A transport that was used offers HTTP/2 in its TLS configuration, and its
	// clone goes on to offer what it does not speak.
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
}

// refusal is the answer of a proxy that does not let a connection through.
type refusal struct{ proxy, target, status string }

// Error names the proxy by its host alone: its address may have a password.
func (r *refusal) Error() string {
	return fmt.Sprintf("%s %s to %s: %s", proxyRefuses, r.proxy, r.target, r.status)
}
