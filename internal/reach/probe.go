package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// Proxy is the proxy by which an endpoint is reached, nil without one. Its error
// is that of the environment.
func (n *Network) Proxy(endpoint string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("reading the endpoint: %w", err)
	}

	if u.Scheme == "grpc" {
		u.Scheme = "http"
	}

	return n.proxy(u)
}

// Probe connects to an endpoint, and with https makes sure of its certificate. It
// sends no request.
func (n *Network) Probe(ctx context.Context, endpoint string, trust Trust) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return fmt.Errorf("reading the endpoint: %w", err)
	}

	secure, port := u.Scheme == "https", u.Port()

	switch {
	case port != "":
	case secure:
		port = "443"
	default:
		port = "80"
	}

	address := net.JoinHostPort(u.Hostname(), port)

	conn, err := n.probeConn(ctx, u, address, secure)
	if err != nil {
		return err
	}

	defer conn.Close() //nolint:errcheck // nothing was sent

	if !secure {
		return nil
	}

	config, err := trust.config()
	if err != nil {
		return err
	}

	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	config.ServerName = u.Hostname()

	return tls.Client(conn, config).HandshakeContext(ctx)
}

func (n *Network) probeConn(ctx context.Context, u *url.URL, address string, secure bool) (net.Conn, error) {
	if secure {
		return n.through(ctx, address)
	}

	proxy, err := n.Proxy(u.String())
	if err != nil {
		return nil, err
	}

	if proxy != nil {
		return n.toProxy(ctx, proxy)
	}

	return n.dial(ctx, "tcp", address)
}

// Explain says in words for people why Probe has failed, and what to do; option is
// how CAs are given for the endpoint, host what was to be reached.
func Explain(err error, host, option string) (what, mend string) {
	if kind, words := Cause(err.Error(), option); kind != KindNone {
		switch kind {
		case KindCertificate:
			return "the certificate of " + host + " is not trusted: " + words, "give the right CA with " + option + ", or the right address"
		case KindProxy:
			return host + " can not be reached: " + words, "see HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
		case KindNoTLS, KindNone:
			return host + ": " + words, "see the address"
		}
	}

	if d, ok := errors.AsType[*net.DNSError](err); ok {
		if d.IsNotFound {
			return "DNS does not know the name " + d.Name, "see the address, and the DNS server of this host"
		}

		return "DNS does not answer for the name " + d.Name + ": " + d.Err, "see the DNS server of this host"
	}

	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return host + " refuses connections: nobody listens there", "see the address and its port, and whether it is up"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return host + " does not answer in time", "see routes and firewalls between here and there"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return host + " has no route from here", "see routes and firewalls between here and there"
	default:
		return host + " can not be reached: " + strings.Join(strings.Fields(err.Error()), " "), "see the address"
	}
}

// WrongProxy names the variable of the environment whose proxy can not be read:
// Go's client passes over such a one without a word. Empty if all can be.
func WrongProxy(lookup func(string) (string, bool)) string {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		text, _ := lookup(name)
		if text == "" {
			continue
		}

		if !strings.Contains(text, "://") {
			text = "http://" + text
		}

		if u, err := url.Parse(text); err != nil || u.Hostname() == "" {
			return name
		}
	}

	return ""
}
