package machineclass

import (
	"fmt"
	"strconv"
)

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

	class.CPUs = orDefault(class.CPUs, orDefault(o.VCPUs, oldDefaultCPUs))
	class.Memory = orDefault(class.Memory, oldDefaultMemory)
	class.BootDiskSize = orDefault(class.BootDiskSize, o.DiskSize)

	if len(class.NICs) == 0 {
		class.NICs = []NIC{{VPCName: o.VPC, SubnetName: o.Subnet}}
	}
}

// rules checks what no field can know by itself. It looks at fields only that
// are right as far as they go.
func (c *Class) rules(check *checker) {
	if check.right("disks") {
		c.diskRules(check)
	}

	if check.right("network_interfaces") {
		c.interfaceRules(check)
	}

	if check.right("network_interfaces") {
		c.addressRules(check)
	}

	if check.right("external_ips") {
		c.externalRules(check)
	}

	if check.right("anti_affinity_groups", "machine_set_group") && c.SetGroup != GroupNone && len(c.AntiAffinityGroups) == maxGroups {
		check.add("anti_affinity_groups", "%d entries and machine_set_group are over the limit of %d", len(c.AntiAffinityGroups), maxGroups)
	}

	if check.right("node_labels") {
		c.labelRules(check)
	}
}

func (c *Class) diskRules(check *checker) {
	names := map[string]int{}

	for i, d := range c.Disks {
		if d.Type == DiskDistributed && d.Size > maxDistributed {
			check.add(fmt.Sprintf("disks[%d].size", i), "%s", overLimit(int64(d.Size), strconv.Itoa(d.Size),
				amount(maxDistributed, gib)+" for a distributed disk", field{unit: gib, max: maxDistributed}))
		}

		if earlier, twice := names[d.Name]; twice {
			check.add(fmt.Sprintf("disks[%d].name", i), "%s is already that of disks[%d]", quote(d.Name), earlier)
		} else {
			names[d.Name] = i
		}
	}
}

func (c *Class) labelRules(check *checker) {
	first := map[string]int{}

	for i, l := range c.NodeLabels {
		key := labelKey(l)

		if earlier, twice := first[key]; twice {
			check.add(fmt.Sprintf("node_labels[%d]", i), "the label %s is already given in node_labels[%d]", key, earlier)
		} else {
			first[key] = i
		}
	}
}
