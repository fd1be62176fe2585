package machineclass

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The labels that a topology gives a node.
const (
	labelRegion       = "topology.kubernetes.io/region"
	labelZone         = "topology.kubernetes.io/zone"
	labelInstanceType = "node.kubernetes.io/instance-type"
)

// Labels are all labels that the class gives its nodes, those of the topology
// included; empty when it asks for none, which then needs no config patch.
func (c *Class) Labels() map[string]string {
	labels := map[string]string{}

	for _, l := range c.NodeLabels {
		key, value, _ := strings.Cut(l, "=")
		labels[key] = value
	}

	for key, value := range map[string]string{
		labelRegion: c.Topology.Region, labelZone: c.Topology.Zone, labelInstanceType: c.Topology.InstanceType,
	} {
		if value != "" {
			labels[key] = value
		}
	}

	return labels
}

// HostnamePinned tells whether a config patch pins the node's name.
func (c *Class) HostnamePinned() bool { return c.Hostname == HostnamePinned }

// CheckSetSize refuses a machine set of n machines that the class can not keep
// apart: with the policy fail all must be in one group, and the rack's groups
// are limited.
func (c *Class) CheckSetSize(n int) error {
	if c.SetGroup == GroupFail && n > MaxSetGroupMembers {
		return Mistakes{{"machine_set_group", fmt.Sprintf(
			"%d machines are over the limit of %d that one anti-affinity group keeps apart, which %s needs", n, MaxSetGroupMembers, GroupFail)}}
	}

	return nil
}

// defaultDiskName is the name of an extra disk that the class gives none.
func defaultDiskName(index int) string { return "data" + strconv.Itoa(index) }

// Has tells whether the interface speaks an IP version.
func (n NIC) Has(version string) bool { return n.IPConfig == DualStack || n.IPConfig == version }

// AddressesOf are the interface's fixed addresses of an IP version.
func (n NIC) AddressesOf(version string) []netip.Addr {
	var all []netip.Addr

	for _, a := range n.Addresses {
		if versionOf(a) == version {
			all = append(all, a)
		}
	}

	return all
}

func versionOf(a netip.Addr) string {
	if a.Is4() {
		return IPv4
	}

	return IPv6
}

// Listed tells whether the address is taken from those that the class names.
func (e ExternalIP) Listed() bool { return len(e.FloatingIPs) > 0 }
