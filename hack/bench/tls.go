package main

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
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// server tells where a part serves, and the certificate if over TLS.
type server struct {
	URL string `json:"url"`
	CA  string `json:"ca,omitempty"`
}

// transport trusts the servers.
func transport(servers ...server) (*http.Transport, error) {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the default transport was replaced")
	}

	t := base.Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}

	for _, s := range servers {
		if s.CA != "" && !t.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(s.CA)) {
			return nil, errors.New("a part's certificate can not be read")
		}
	}

	return t, nil
}

// gate is a listener that counts connections and bounds what comes in over all
// of them, in bytes a second; 0 is no bound.
type gate struct {
	net.Listener

	rate     int64
	accepted atomic.Int64
	now      pacer
}

func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil || g.rate == 0 {
		g.accepted.Add(1)

		return c, err
	}

	g.accepted.Add(1)

	return gated{c, g}, nil
}

type gated struct {
	net.Conn
	gate *gate
}

func (c gated) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 64<<10)])
	c.gate.now.spend(n, c.gate.rate)

	return n, err
}

// pacer lets bytes pass at a rate.
type pacer struct {
	mu   sync.Mutex
	free time.Time // when all that was let through has passed
}

func (p *pacer) spend(n int, rate int64) {
	if rate == 0 {
		return
	}

	p.mu.Lock()

	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}

	p.free = p.free.Add(time.Duration(int64(n) * int64(time.Second) / rate))
	wait := p.free.Sub(now)
	p.mu.Unlock()

	// Short waits are not worth a timer; they add up in free.
	if wait > time.Millisecond {
		time.Sleep(wait)
	}
}

// serve answers until ctx ends, once told says where.
func serve(ctx context.Context, h http.Handler, secure bool, g *gate, told func(server) error) error {
	var lc net.ListenConfig

	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	g.Listener = l
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	where := server{URL: "http://" + l.Addr().String()}

	if secure {
		cert, text, err := certificate()
		if err != nil {
			return err
		}

		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		where = server{URL: "https://" + l.Addr().String(), CA: text}
	}

	done := make(chan error, 1)

	go func() {
		if secure {
			done <- srv.ServeTLS(g, "", "")
		} else {
			done <- srv.Serve(g)
		}
	}()

	err = told(where)
	if err == nil {
		<-ctx.Done()
	}

	err = errors.Join(err, srv.Close())
	if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}

	return err
}

// certificate makes one for 127.0.0.1 that signs itself.
func certificate() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("making a certificate: %w", err)
	}

	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})

	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(text), nil
}
