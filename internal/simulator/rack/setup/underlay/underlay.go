// Package underlay is the network inside a simulated rack. Services listen at
// the addresses of their plan and are dialled there; what carries the bytes is
// loopback, at ports that the system picks.
package underlay

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
)

const loopback = "127.0.0.1:0"

// Underlay knows who listens where. The zero value is an empty network; it is
// safe for concurrent use.
type Underlay struct {
	mu sync.Mutex
	at map[endpoint]string
}

type endpoint struct {
	network string // tcp or udp
	address netip.AddrPort
}

// Listen listens at an address of the underlay until the listener is closed.
func (u *Underlay) Listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", loopback)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", at, err)
	}

	e := endpoint{"tcp", at}
	if err := u.join(e, l.Addr().String()); err != nil {
		_ = l.Close()

		return nil, err
	}

	return &listener{l, sync.OnceFunc(func() { u.leave(e) })}, nil
}

// ListenPacket is Listen for datagrams.
func (u *Underlay) ListenPacket(ctx context.Context, at netip.AddrPort) (net.PacketConn, error) {
	c, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", loopback)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", at, err)
	}

	e := endpoint{"udp", at}
	if err := u.join(e, c.LocalAddr().String()); err != nil {
		_ = c.Close()

		return nil, err
	}

	return &packetConn{c, sync.OnceFunc(func() { u.leave(e) })}, nil
}

// DialContext dials an address of the underlay; where nobody listens the
// connection is refused.
func (u *Underlay) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialling in the underlay: %w", err)
	}

	real, found := u.Loopback(strings.TrimRight(network, "46"), at)
	if !found {
		return nil, fmt.Errorf("dialling %s: %w", at, syscall.ECONNREFUSED)
	}

	return (&net.Dialer{}).DialContext(ctx, network, real)
}

// Loopback is the real address of what listens at an address of the underlay,
// tcp or udp; false where nobody does.
func (u *Underlay) Loopback(network string, at netip.AddrPort) (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()

	real, found := u.at[endpoint{network, at}]

	return real, found
}

func (u *Underlay) join(e endpoint, real string) error {
	u.mu.Lock()
	defer u.mu.Unlock()

	if _, taken := u.at[e]; taken {
		return fmt.Errorf("listening at %s: %w", e.address, syscall.EADDRINUSE)
	}

	if u.at == nil {
		u.at = map[endpoint]string{}
	}

	u.at[e] = real

	return nil
}

func (u *Underlay) leave(e endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()

	delete(u.at, e)
}

type listener struct {
	net.Listener
	leave func()
}

func (l *listener) Close() error {
	l.leave()

	return l.Listener.Close()
}

type packetConn struct {
	net.PacketConn
	leave func()
}

func (c *packetConn) Close() error {
	c.leave()

	return c.PacketConn.Close()
}
