package machineclass

import "fmt"

// oldClass has the keys of the published provider's first generation.
type oldClass struct {
	VCPUs    int    `yaml:"vcpus"`
	DiskSize int    `yaml:"disk_size"`
	VPC      string `yaml:"vpc"`
	Subnet   string `yaml:"subnet"`
}

// translate puts the values of old keys where they belong today. A class that
// has one was written for the old defaults, so those apply to it.
func (o oldClass) translate(c *checker, class *Class) {
	old := false

	for _, k := range []struct{ was, is string }{
		{"vcpus", "cpus"},
		{"disk_size", "boot_disk_size"},
		{"vpc", "network_interfaces"},
		{"subnet", "network_interfaces"},
	} {
		if !c.seen[k.was] {
			continue
		}

		old = true

		if c.seen[k.is] {
			c.add(k.was, "is an old key for %s, which is given too", k.is)
		}
	}

	if !old {
		return
	}

	class.CPUs = orDefault(class.CPUs, orDefault(o.VCPUs, 2))
	class.Memory = orDefault(class.Memory, 8)
	class.BootDiskSize = orDefault(class.BootDiskSize, o.DiskSize)

	if len(class.NetworkInterfaces) == 0 {
		class.NetworkInterfaces = []NetworkInterface{{VPCName: o.VPC, SubnetName: o.Subnet}}
	}
}

// rules checks what no field can know by itself. It looks at fields only that
// are right as far as they go.
func (c *Class) rules(check *checker) {
	if !check.wrong["disks"] {
		for i, d := range c.Disks {
			if d.Type == DiskDistributed && d.Size > maxDistributed {
				check.add(fmt.Sprintf("disks[%d].size", i), "%s for a distributed disk",
					overLimit(int64(d.Size), fmt.Sprint(d.Size), amount(maxDistributed, gib), ""))
			}
		}
	}

	if check.wrong["network_interfaces"] {
		return
	}

	subnets := map[string]int{}

	for i, n := range c.NetworkInterfaces {
		if first := c.NetworkInterfaces[0].VPCName; n.VPCName != first {
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
