package machineclass

import (
	"fmt"
	"net/netip"
)

// interfaceRules: the rack takes interfaces of one VPC only, each in a subnet of
// its own.
func (c *Class) interfaceRules(check *checker) {
	subnets := map[string]int{}

	for i, n := range c.NICs {
		if first := c.NICs[0].VPCName; n.VPCName != first {
			check.add(fmt.Sprintf("network_interfaces[%d].vpc_name", i),
				"%s is not %s, all interfaces must be in one VPC", quote(n.VPCName), quote(first))

			continue
		}

		if earlier, twice := subnets[n.SubnetName]; twice {
			check.add(fmt.Sprintf("network_interfaces[%d].subnet_name", i),
				"%s is already that of network_interfaces[%d], each interface needs its own subnet", quote(n.SubnetName), earlier)

			continue
		}

		subnets[n.SubnetName] = i
	}
}

// addressRules: addresses and networks are of the interface's IP versions, and
// none is in the class twice. Whether they are in the subnet only the rack knows.
func (c *Class) addressRules(check *checker) {
	addresses := map[netip.Addr]string{}

	for i, n := range c.NICs {
		for j, a := range n.Addresses {
			path := fmt.Sprintf("network_interfaces[%d].addresses[%d]", i, j)

			if !n.Has(versionOf(a)) {
				check.add(path, "%s is not of the interface's ip_config %s", a, n.IPConfig)
			}

			if earlier, twice := addresses[a]; twice {
				check.add(path, "%s is already in %s", a, earlier)
			} else {
				addresses[a] = path
			}
		}

		n.transitRules(check, i)
	}
}

func (n NIC) transitRules(check *checker, index int) {
	for j, p := range n.TransitIPs {
		path := fmt.Sprintf("network_interfaces[%d].transit_ips[%d]", index, j)

		if !n.Has(versionOf(p.Addr())) {
			check.add(path, "%s is not of the interface's ip_config %s", p, n.IPConfig)
		}

		for k, earlier := range n.TransitIPs[:j] {
			if p.Overlaps(earlier) {
				check.add(path, "%s overlaps %s of transit_ips[%d]", p, earlier, k)

				break
			}
		}
	}
}

// externalRules: what each entry must agree on in itself, with the others and
// with the primary interface.
func (c *Class) externalRules(check *checker) {
	var ephemeral []int

	listed := map[string]string{}

	for i, e := range c.ExternalIPs {
		path := fmt.Sprintf("external_ips[%d]", i)

		switch {
		case e.Listed() && e.Type != Floating:
			check.add(path+".floating_ips", "are for the type %s, not for %s", Floating, e.Type)
		case e.Listed() && (e.Pool != "" || e.IPVersion != ""):
			check.add(path+".floating_ips", "name addresses that exist, which go without pool and ip_version")
		}

		if e.Type == Ephemeral {
			ephemeral = append(ephemeral, i)
		}

		if check.right("network_interfaces") && e.IPVersion != "" && !c.NICs[0].Has(e.IPVersion) {
			check.add(path+".ip_version", "%s is not of the primary interface's ip_config %s", e.IPVersion, c.NICs[0].IPConfig)
		}

		for j, name := range e.FloatingIPs {
			at := fmt.Sprintf("%s.floating_ips[%d]", path, j)

			if earlier, twice := listed[name]; twice {
				check.add(at, "%s is already in %s", quote(name), earlier)
			} else {
				listed[name] = at
			}
		}
	}

	c.ephemeralRules(check, ephemeral)
}

func (c *Class) ephemeralRules(check *checker, at []int) {
	if len(at) > maxEphemeralIPs {
		check.add("external_ips", "%d ephemeral entries are over the limit of %d, one of each IP version", len(at), maxEphemeralIPs)

		return
	}

	if len(at) < maxEphemeralIPs {
		return
	}

	// A pool without a version has one that only the rack knows.
	if version := c.ExternalIPs[at[1]].IPVersion; version != "" && version == c.ExternalIPs[at[0]].IPVersion {
		check.add(fmt.Sprintf("external_ips[%d].ip_version", at[1]),
			"%s is already that of external_ips[%d], two ephemeral addresses must be of different IP versions", version, at[0])
	}
}
