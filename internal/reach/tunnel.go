package reach

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

// Tunnel answers the address and the options by which gRPC reaches an https
// endpoint of ours: for what gRPC knows, without TLS. It is the endpoint itself,
// without options, when gRPC can do it alone.
//
// The connection is refused unless the server has agreed to speak HTTP/2, as
// gRPC does itself where it makes the TLS. Names are looked up at each new
// connection, and not at all where a proxy does that.
func (n *Network) Tunnel(endpoint string, trust Trust) (string, []grpc.DialOption, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", nil, fmt.Errorf("reading the endpoint: %w", err)
	}

	config, err := trust.config()
	if err != nil || config == nil || u.Scheme != "https" {
		return endpoint, nil, err
	}

	port := u.Port()
	if port == "" {
		port = "443"
	}

	t := &tunnel{network: n, address: net.JoinHostPort(u.Hostname(), port), config: config}
	config.ServerName, config.NextProtos = u.Hostname(), []string{"h2"}

	return "grpc://" + t.address, []grpc.DialOption{grpc.WithContextDialer(t.dial), grpc.WithResolvers(unresolved{})}, nil
}

// tunnel makes the connections to one endpoint.
type tunnel struct {
	network *Network
	address string // with port
	config  *tls.Config
}

func (t *tunnel) dial(ctx context.Context, _ string) (net.Conn, error) {
	raw, err := t.network.through(ctx, t.address)
	if err != nil {
		return nil, err
	}

	conn := tls.Client(raw, t.config)

	err = conn.HandshakeContext(ctx)
	if err == nil && conn.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.New("it speaks TLS, but not HTTP/2, which gRPC needs: is something else in front of it?")
	}

	if err != nil {
		_ = raw.Close()

		return nil, err
	}

	return conn, nil
}

// through connects to an address that speaks TLS, by the proxy if one is for it.
func (n *Network) through(ctx context.Context, address string) (net.Conn, error) {
	proxy, err := n.proxy(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, fmt.Errorf("reading the proxy's address in the environment: %w", err)
	}

	if proxy == nil {
		return n.dial(ctx, "tcp", address)
	}

	conn, err := n.toProxy(ctx, proxy)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", proxyUnreachable, err)
	}

	// The handshake ends with the context by losing its connection.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })

	err = connect(ctx, conn, proxy, address)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}

	if err != nil {
		_ = conn.Close()

		return nil, err
	}

	return conn, nil
}

func (n *Network) toProxy(ctx context.Context, proxy *url.URL) (net.Conn, error) {
	port := map[string]string{"http": "80", "https": "443"}[proxy.Scheme]

	switch {
	case port == "":
		return nil, fmt.Errorf("Omni is reached by proxies with http:// or https:// only, not %s://", proxy.Scheme) //nolint:staticcheck // a name
	case proxy.Port() != "":
		port = proxy.Port()
	}

	conn, err := n.dial(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), port))
	if err != nil || proxy.Scheme == "http" {
		return conn, err
	}

	secure := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: proxy.Hostname()})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()

		return nil, err
	}

	return secure, nil
}

// connect asks the proxy for a connection to the address.
func connect(ctx context.Context, conn net.Conn, proxy *url.URL, address string) error {
	req := (&http.Request{
		Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{},
	}).WithContext(ctx)

	if proxy.User != nil {
		password, _ := proxy.User.Password()
		req.Header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password)))
	}

	if err := req.Write(conn); err != nil {
		return fmt.Errorf("%s: %w", proxyUnreachable, err)
	}

	in := bufio.NewReader(conn)

	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return fmt.Errorf("%s: reading its answer: %w", proxyUnreachable, err)
	}

	switch {
	case resp.StatusCode != http.StatusOK:
		_ = resp.Body.Close()

		return &refusal{proxy: proxy.Host, target: address, status: resp.Status}
	case in.Buffered() > 0:
		// In TLS the client speaks first.
		return fmt.Errorf("%s: something else than TLS follows its answer", proxyUnreachable)
	default:
		return nil
	}
}

// unresolved hands the name itself to the dialer, in place of gRPC's own look-up.
type unresolved struct{}

// Scheme implements resolver.Builder: that of targets without a scheme.
func (unresolved) Scheme() string { return "dns" }

// Build implements resolver.Builder.
func (unresolved) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) { //nolint:ireturn // as gRPC wants
	return unresolved{}, cc.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: target.Endpoint()}}})
}

// ResolveNow implements resolver.Resolver.
func (unresolved) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (unresolved) Close() {}
