// Package edge is what stands between a site and those who come to it: a
// certificate authority of its own, servers that end TLS before the simulated
// ones, and a proxy that makes connections for others.
package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"
)

// CA is a certificate authority that no system knows.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes one.
func NewCA(name string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a CA's key: %w", err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a CA's certificate: %w", err)
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading a CA's certificate: %w", err)
	}

	return &CA{cert, key}, nil
}

// PEM is its certificate.
func (c *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// Issue makes a certificate for names and addresses, good until an end.
func (c *CA) Issue(end time.Time, hosts ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "edge"},
		NotBefore: end.Add(-48 * time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}

	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Door is a listener that hands what comes in to a server behind it.
type Door struct {
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]struct{}
}

// open listens on loopback and serves each connection.
func open(ctx context.Context, wrap func(net.Listener) net.Listener, serve func(context.Context, *Door, net.Conn)) (*Door, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}

	d := &Door{listener: wrap(l), conns: map[net.Conn]struct{}{}}

	ctx = context.WithoutCancel(ctx)

	d.work.Go(func() {
		for {
			c, err := d.listener.Accept()
			if err != nil {
				return
			}

			d.work.Go(func() {
				defer d.hold(c)()

				serve(ctx, d, c)
			})
		}
	})

	return d, nil
}

// OpenTLS ends TLS before the server at the address. alpn are the protocols that
// the server behind it speaks.
func OpenTLS(ctx context.Context, target string, cert tls.Certificate, alpn ...string) (*Door, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: alpn}

	return open(ctx, func(l net.Listener) net.Listener { return tls.NewListener(l, config) },
		func(ctx context.Context, d *Door, c net.Conn) { d.join(ctx, c, c, target) })
}

// Address is where it listens.
func (d *Door) Address() string { return d.listener.Addr().String() }

// Close ends all connections and waits for them.
func (d *Door) Close() error {
	err := d.listener.Close()

	d.mu.Lock()
	d.shut = true

	for c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()

	d.work.Wait()

	if errors.Is(err, net.ErrClosed) {
		return nil
	}

	return err
}

// hold knows the connection until the function it returns closes it.
func (d *Door) hold(c net.Conn) func() {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.conns[c] = struct{}{}

	if d.shut {
		_ = c.Close()
	}

	return func() {
		_ = c.Close()

		d.mu.Lock()
		defer d.mu.Unlock()

		delete(d.conns, c)
	}
}

// join carries bytes between a connection and the server at the address.
func (d *Door) join(ctx context.Context, from io.Reader, c net.Conn, target string) {
	up, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}

	defer d.hold(up)()

	var back sync.WaitGroup

	back.Go(func() {
		_, _ = io.Copy(c, up)
		_ = c.Close()
	})

	_, _ = io.Copy(up, from)
	_ = up.Close()

	back.Wait()
}
