package rack

import "net/netip"

const reservedAtStart = 5 // addresses at the head of a subnet that no NIC gets

// assign gives a NIC an address of a block: the one wanted, or the lowest free.
func (n *subnet) assign(block netip.Prefix, wanted netip.Addr, nic string) (netip.Addr, error) {
	if wanted.IsValid() {
		switch {
		case !block.Contains(wanted):
			return wanted, invalidRequest("Requested IP address \"%s\" is not contained in the subnet", wanted)
		case n.reserved(block, wanted):
			return wanted, invalidRequest("Requested IP address \"%s\" is reserved", wanted)
		case n.taken[wanted] != "":
			return wanted, invalidRequest("The IP address \"%s\" is not available", wanted)
		}

		n.taken[wanted] = nic

		return wanted, nil
	}

	a := block.Addr()
	for range reservedAtStart {
		a = a.Next()
	}

	for ; block.Contains(a) && !n.reserved(block, a); a = a.Next() {
		if n.taken[a] == "" {
			n.taken[a] = nic

			return a, nil
		}
	}

	version := "IPv6"
	if block.Addr().Is4() {
		version = "IPv4"
	}

	return a, invalidRequest("No available %s addresses for interface in subnet '%s'", version, n.name)
}

// reserved addresses are the first few of a block, and the broadcast address.
func (n *subnet) reserved(block netip.Prefix, a netip.Addr) bool {
	first := block.Addr()
	for range reservedAtStart {
		if a == first {
			return true
		}

		first = first.Next()
	}

	return a.Is4() && !block.Contains(a.Next())
}
