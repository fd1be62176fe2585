package rack

import (
	"net/netip"
	"testing"
)

// A pool hands out its ranges one after the other, then nothing.
func TestAPoolOfSeveralRanges(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Pools = []Pool{{
			Name: "two", IPVersion: "v4", Default: true, First: "198.18.0.255", Size: 1,
			More: []PoolRange{{First: "198.18.9.1", Size: 2}},
		}}
	})

	p, err := r.defaultPool("v4")
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"198.18.0.255", "198.18.9.1", "198.18.9.2"} {
		if ip, err := p.takeWhole(netip.Addr{}); err != nil || ip.String() != want {
			t.Errorf("got %s, %v; want %s", ip, err, want)
		}
	}

	if ip, err := p.takeWhole(netip.Addr{}); err == nil {
		t.Errorf("a fourth address: %s", ip)
	}
}

func TestAPoolRefusesRangesOfAnotherVersion(t *testing.T) {
	for _, more := range []PoolRange{{First: "fd00::1", Size: 1}, {First: "nowhere", Size: 1}} {
		if s, err := New(Config{Pools: []Pool{{Name: "p", IPVersion: "v4", First: "198.18.0.1", Size: 1, More: []PoolRange{more}}}}); err == nil {
			s.Close()
			t.Errorf("%+v was taken", more)
		}
	}
}

func TestARackNeedsAPantry(t *testing.T) {
	if s, err := New(Config{Pantries: []string{}}); err == nil {
		s.Close()
		t.Error("a rack without any was made")
	}
}
