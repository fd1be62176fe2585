package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/test/bufconn"
)

// network is a network in memory, so that time can be fake in a test that
// speaks the real protocols.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	// cert makes the Omni API speak TLS.
	cert *tls.Certificate
	// open counts the connections that were dialed and not closed.
	open atomic.Int64
}

func newNetwork() *network {
	usePlain()

	return &network{listeners: map[string]*bufconn.Listener{}}
}

func (n *network) listen(_ context.Context, name, _ string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	l := bufconn.Listen(1 << 20)
	n.listeners[name] = l

	if n.cert != nil {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*n.cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}), nil
	}

	return l, nil
}

var errRefused = errors.New("connection refused")

// dialer dials a listener by its name, whatever the address.
func (n *network) dialer(name string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		n.mu.Lock()
		l := n.listeners[name]
		n.mu.Unlock()

		if l == nil {
			return nil, errRefused
		}

		conn, err := l.DialContext(ctx)
		if err != nil {
			return nil, err
		}

		n.open.Add(1)

		return &dialed{Conn: conn, closed: sync.OnceFunc(func() { n.open.Add(-1) })}, nil
	}
}

// dialed is a connection that is counted until it is closed.
type dialed struct {
	net.Conn

	closed func()
}

// Close implements net.Conn.
func (c *dialed) Close() error {
	c.closed()

	return c.Conn.Close()
}

// serve answers HTTP under a name until the test ends, and gives a transport
// that finds it.
func (n *network) serve(t *testing.T, name string, h http.Handler) *http.Transport {
	t.Helper()

	l, err := n.listen(t.Context(), name, "")
	if err != nil {
		t.Fatal(err)
	}

	s := &http.Server{Handler: h}
	served := make(chan error, 1)

	go func() { served <- s.Serve(l) }()

	t.Cleanup(func() {
		_ = s.Close()

		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serving %s: %v", name, err)
		}
	})

	return &http.Transport{DialContext: dialTCP(n.dialer(name))}
}

// dialTCP is a dialer as HTTP wants it.
func dialTCP(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) }
}

// plain stands in for gzip on both sides of the tests' connections: the race
// detector makes each compression of a message cost milliseconds.
type plain struct{ io.Writer }

// Name implements encoding.Compressor.
func (plain) Name() string { return "gzip" }

// Compress implements encoding.Compressor.
func (plain) Compress(w io.Writer) (io.WriteCloser, error) { return plain{w}, nil }

// Decompress implements encoding.Compressor.
func (plain) Decompress(r io.Reader) (io.Reader, error) { return r, nil }

// Close implements io.Closer.
func (plain) Close() error { return nil }

var usePlain = sync.OnceFunc(func() { encoding.RegisterCompressor(plain{}) })
