package addresses

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

var rack = netip.MustParsePrefix("fd00:1122:3344:100::/56")

func TestSubnetsOfARack(t *testing.T) {
	for n, want := range map[int]string{0: "fd00:1122:3344:100::/64", 1: "fd00:1122:3344:101::/64", 255: "fd00:1122:3344:1ff::/64"} {
		if got, err := Subnet(rack, n); err != nil || got.String() != want {
			t.Errorf("subnet %d is %s, %v", n, got, err)
		}
	}

	for _, n := range []int{-1, Subnets} {
		if got, err := Subnet(rack, n); err == nil {
			t.Errorf("subnet %d is %s", n, got)
		}
	}
}

func TestWhatIsNoUnderlay(t *testing.T) {
	for _, p := range []string{"fd00::/48", "fd00:0:0:1::/64", "fd00:0:0:1::/56", "10.0.0.0/8", "2001:db8::/56", "::ffff:10.0.0.0/104"} {
		if err := CheckRack(netip.MustParsePrefix(p)); err == nil {
			t.Errorf("%s was taken", p)
		}
	}

	if err := CheckRack(netip.Prefix{}); err == nil {
		t.Error("no prefix was taken")
	}
}

// Invariant: an allocator gives each address of its range once, in order,
// inside its subnet, never the agent's, and then an error for ever.
func TestAnAllocatorGivesEachAddressOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sled, err := Subnet(rack, rapid.IntRange(0, Subnets-1).Draw(t, "subnet"))
		if err != nil {
			t.Fatal(err)
		}

		a := NewAllocator(sled)
		a.last = firstHost + rapid.IntRange(0, 300).Draw(t, "size") - 1
		size := a.last - firstHost + 1
		before := Agent(sled)

		for range size {
			got, err := a.Next()
			if err != nil {
				t.Fatal(err)
			}

			if !sled.Contains(got) || !before.Less(got) {
				t.Fatalf("%s after %s of %s", got, before, sled)
			}

			before = got
		}

		for range 3 {
			if got, err := a.Next(); err == nil {
				t.Fatalf("%s after all %d", got, size)
			}
		}
	})
}

func TestAnAllocatorIsExhaustedAtItsBound(t *testing.T) {
	a := NewAllocator(netip.MustParsePrefix("fd00:1122:3344:101::/64"))

	var last netip.Addr

	for range lastHost - firstHost + 1 {
		got, err := a.Next()
		if err != nil {
			t.Fatal(err)
		}

		last = got
	}

	if last.String() != "fd00:1122:3344:101::ffff" {
		t.Errorf("the last is %s", last)
	}

	if _, err := a.Next(); err == nil || err.Error() != "all 65504 addresses of fd00:1122:3344:101::/64 are given" {
		t.Errorf("after the last: %v", err)
	}
}
