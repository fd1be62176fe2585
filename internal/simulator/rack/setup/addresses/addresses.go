// Package addresses hands out the addresses of a rack's underlay: a /56 is the
// rack's, each sled has one /64 of it, and a bump allocator gives the sled's
// services their addresses out of that, one after the other and none twice.
package addresses

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

const (
	rackBits = 56
	sledBits = 64
	// Subnets is how many /64 a rack has.
	Subnets = 1 << (sledBits - rackBits)

	// agentHost is the address in each /64 that is not handed out: the sled's
	// own agent answers there, and is found without asking anybody.
	agentHost = 1
	// firstHost leaves the ones below it to the sled itself.
	firstHost = 0x20
	// lastHost is a bound that no sled comes near to.
	lastHost = 0xffff
)

// Subnet is the nth /64 of a rack's /56, 0 to 255.
func Subnet(rack netip.Prefix, n int) (netip.Prefix, error) {
	if err := CheckRack(rack); err != nil {
		return netip.Prefix{}, err
	}

	if n < 0 || n >= Subnets {
		return netip.Prefix{}, fmt.Errorf("subnet %d of %s: a rack has %d", n, rack, Subnets)
	}

	a := rack.Addr().As16()
	a[7] = byte(n)

	return netip.PrefixFrom(netip.AddrFrom16(a), sledBits), nil
}

// CheckRack says why a prefix can not be a rack's underlay, nil if it can.
func CheckRack(p netip.Prefix) error {
	switch {
	case !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6():
		return fmt.Errorf("%s is no IPv6 prefix", p)
	case p.Bits() != rackBits:
		return fmt.Errorf("%s is no /%d", p, rackBits)
	case p.Masked() != p:
		return fmt.Errorf("%s has bits set beyond /%d", p, rackBits)
	case !p.Addr().IsPrivate():
		return fmt.Errorf("%s is not in fd00::/8, where underlays are", p)
	}

	return nil
}

// Agent is the address of a sled's own agent.
func Agent(sled netip.Prefix) netip.Addr { return host(sled, agentHost) }

func host(p netip.Prefix, n uint16) netip.Addr {
	a := p.Masked().Addr().As16()
	binary.BigEndian.PutUint16(a[14:], n)

	return netip.AddrFrom16(a)
}

// Allocator hands out addresses of one /64 in order. It takes none back: an
// address that has been given stays its owner's. It is not safe for concurrent
// use.
type Allocator struct {
	subnet netip.Prefix
	next   int
	last   int
}

// NewAllocator starts at the first address that services may have.
func NewAllocator(sled netip.Prefix) *Allocator {
	return &Allocator{subnet: sled.Masked(), next: firstHost, last: lastHost}
}

// Next is the next address, or an error when all are given.
func (a *Allocator) Next() (netip.Addr, error) {
	if a.next > a.last {
		return netip.Addr{}, fmt.Errorf("all %d addresses of %s are given", a.last-firstHost+1, a.subnet)
	}

	out := host(a.subnet, uint16(a.next))
	a.next++

	return out, nil
}
