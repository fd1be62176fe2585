package underlay

import (
	"errors"
	"io"
	"net/netip"
	"syscall"
	"testing"
)

var at = netip.MustParseAddrPort("[fd00:1122:3344:101::20]:80")

func TestOneListensAndOthersDial(t *testing.T) {
	var u Underlay

	l, err := u.Listen(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := u.Listen(t.Context(), at); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}

	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}

		_, _ = io.WriteString(c, "hello")
		_ = c.Close()
	}()

	c, err := u.DialContext(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}

	if got, err := io.ReadAll(c); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}

	c.Close()
	l.Close()

	if _, err := u.DialContext(t.Context(), "tcp", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after it has closed: %v", err)
	}

	if l, err = u.Listen(t.Context(), at); err != nil {
		t.Errorf("the address is not free again: %v", err)
	}

	l.Close()
}

func TestDatagramsAreANetworkOfTheirOwn(t *testing.T) {
	var u Underlay

	p, err := u.ListenPacket(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	if _, err := u.DialContext(t.Context(), "tcp", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a stream to it: %v", err)
	}

	c, err := u.DialContext(t.Context(), "udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}

	got := make([]byte, 10)
	if n, _, err := p.ReadFrom(got); string(got[:n]) != "hello" || err != nil {
		t.Errorf("%q, %v", got[:n], err)
	}
}
