package rack

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

// pourSize is the size of the pieces in which a body goes out, in bytes: a
// multiple of what base64 makes of three bytes.
const pourSize = 64 << 10

// pouring has each connection of a transport send bodies by way of one buffer
// that it keeps. Go's transport would make a new one for each request, and the
// bodies of an image's bulk writes are hundreds.
//
// Connections through a proxy to a rack with TLS are left as they are: the
// transport wraps those itself.
func pouring(t *http.Transport) {
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}

	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}

		return &pourConn{Conn: c}, nil
	}

	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}

		secure, err := shakeHands(ctx, c, address, t.TLSClientConfig, t.TLSHandshakeTimeout)
		if err != nil {
			c.Close() //nolint:errcheck // nothing was sent

			return nil, err
		}

		return &pourConn{Conn: secure}, nil
	}
}

// shakeHands does what Go's transport does for a connection with TLS.
func shakeHands(ctx context.Context, c net.Conn, address string, config *tls.Config, limit time.Duration) (*tls.Conn, error) {
	config = config.Clone()

	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}

		config.ServerName = host
	}

	if limit > 0 {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}

	secure := tls.Client(c, config)
	err := secure.HandshakeContext(ctx)

	return secure, err
}

// pourConn copies with a buffer of its own.
type pourConn struct {
	net.Conn

	buffer []byte // only one request is sent at a time
}

// ReadFrom implements io.ReaderFrom.
func (c *pourConn) ReadFrom(r io.Reader) (int64, error) {
	if c.buffer == nil {
		c.buffer = make([]byte, pourSize)
	}

	return io.CopyBuffer(struct{ io.Writer }{c.Conn}, struct{ io.Reader }{r}, c.buffer)
}
