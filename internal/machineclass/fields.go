package machineclass

// The rack's limits.
const (
	maxCPUs         = 254
	maxMemory       = 1536             // GiB
	maxDistributed  = 1023             // GiB
	maxLocal        = 10 * 1024 * 1024 // GiB; 10 PiB, what a rack ever accepts
	maxDisks        = 12 - 1           // the boot disk is the twelfth
	maxInterfaces   = 8
	maxGroups       = 16
	namePattern     = `[a-z]([a-z0-9-]{0,61}[a-z0-9])?`
	uuidPattern     = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
	undashedPattern = `[0-9a-fA-F]{32}`
	nameRule        = "1 to 63 of a-z, 0-9 and -, a letter first, no - last"
	nameMessage     = "must be a name: " + nameRule
	nameOrIDMessage = "must be a name (" + nameRule + ") or an ID"
	gib             = "GiB"
)

type kind int

const (
	kindName kind = iota
	kindNameOrID
	kindEnum
	kindWhole
	kindFlag
	kindList
	kindObject
)

// field describes one key: for the check, for the schema and for people.
type field struct {
	key      string
	title    string
	help     string // one line, with unit and limit
	kind     kind
	required bool
	def      any      // what the schema shows as the default
	max      int      // of a number, whose least is 1, or of a list's entries
	unit     string   // of a number
	values   []string // of an enumeration
	hidden   []string // values that are known but not advertised in errors
	limit    string   // said after the limit of a list
	unique   bool     // no entry of a list twice
	entry    *field   // of a list
	fields   []field  // of an object
}

// fields are the keys of a class, in the order of the form.
func fields() []field {
	return []field{
		{
			key: "project", title: "Project", kind: kindNameOrID, required: true,
			help: "Name or ID of the Oxide project that the machines are made in.",
		},
		{
			key: "cpus", title: "vCPUs", kind: kindWhole, max: maxCPUs, def: 1,
			help: "Number of virtual CPUs, 1 to 254. Default: 1.",
		},
		{
			key: "memory", title: "Memory (GiB)", kind: kindWhole, max: maxMemory, unit: gib, def: 4,
			help: "Memory in whole GiB, 1 to 1536. Default: 4.",
		},
		{
			key: "boot_disk_size", title: "Boot disk (GiB)", kind: kindWhole, max: maxDistributed, unit: gib, def: 10,
			help: "Size of the boot disk in whole GiB, 1 to 1023, at least that of the Talos image. Default: 10.",
		},
		{
			key: "disks", title: "Extra disks", kind: kindList, max: maxDisks, limit: " (12 with the boot disk)",
			help:  "Disks beside the boot disk, at most 11.",
			entry: &field{kind: kindObject, title: "Disk", fields: diskFields()},
		},
		{
			key: "network_interfaces", title: "Network interfaces", kind: kindList, max: maxInterfaces,
			help: "At most 8 interfaces, all in one VPC, each in its own subnet; the first is the primary one. " +
				"Default: one IPv4 interface in the VPC and subnet named default.",
			entry: &field{kind: kindObject, title: "Network interface", fields: interfaceFields()},
		},
		{
			key: "auto_restart_policy", title: "Restart after failure", kind: kindEnum, def: RestartBestEffort,
			values: []string{RestartBestEffort, RestartNever},
			help:   "Whether the rack starts a failed instance again. Default: best_effort.",
		},
		{
			key: "cpu_platform", title: "CPU platform", kind: kindEnum, def: AMDMilan,
			values: []string{AMDMilan, AMDTurin, AMDTurinV2}, hidden: []string{amdTurinV2Published},
			help: "Least CPU generation of the sled that a machine runs on. Default: amd_milan.",
		},
		{
			key: "anti_affinity_groups", title: "Anti-affinity groups", kind: kindList, max: maxGroups, unique: true,
			help:  "Names or IDs of existing anti-affinity groups of the project, at most 16.",
			entry: &field{kind: kindNameOrID, title: "Group", help: "Name or ID of an anti-affinity group."},
		},
		{
			key: "enable_jumbo_frames", title: "Jumbo frames", kind: kindFlag, def: false,
			help: "Packets of up to 8500 bytes; only on racks that allow it. Default: off.",
		},
	}
}

func diskFields() []field {
	return []field{
		{
			key: "type", title: "Type", kind: kindEnum, def: DiskDistributed,
			values: []string{DiskDistributed, DiskLocal},
			help:   "distributed (replicated over sleds) or local (on the machine's own sled). Default: distributed.",
		},
		{
			key: "size", title: "Size (GiB)", kind: kindWhole, max: maxLocal, unit: gib, required: true,
			help: "Size in whole GiB, at least 1, at most 1023 for a distributed disk.",
		},
	}
}

func interfaceFields() []field {
	return []field{
		{
			key: "ip_config", title: "IP configuration", kind: kindEnum, def: IPv4,
			values: []string{IPv4, IPv6, DualStack},
			help:   "IP versions of the interface: v4, v6 or dual_stack. Default: v4.",
		},
		{
			key: "subnet_name", title: "Subnet", kind: kindName, def: "default",
			help: "Name of the VPC subnet. Default: default.",
		},
		{
			key: "vpc_name", title: "VPC", kind: kindName, def: "default",
			help: "Name of the VPC, one for all interfaces. Default: default.",
		},
	}
}

// oldFields are the keys of the published provider's first generation. The
// schema knows them, the form does not show them.
func oldFields() []field {
	return []field{
		{key: "vcpus", kind: kindWhole, max: maxCPUs},
		{key: "disk_size", kind: kindWhole, max: maxDistributed, unit: gib},
		{key: "vpc", kind: kindName},
		{key: "subnet", kind: kindName},
	}
}
