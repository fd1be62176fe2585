package machineclass

import (
	"fmt"
)

const gib = "GiB"

type kind int

const (
	kindText kind = iota
	kindEnum
	kindWhole
	kindFlag
	kindList
	kindObject
)

// field describes one key: for the check, for the schema and for people.
type field struct {
	key       string
	title     string
	help      string // one line, to which limits and default are added
	note      string // what else the reference says
	kind      kind
	required  bool
	form      *form    // of a text
	def       any      // what it is without a value; shown in the schema
	otherwise string   // what it is without a value, in words, where def can not say it
	max       int      // of a number, whose least is 1, or of a list's entries
	unit      string   // of a number
	values    []string // of an enumeration
	hidden    []string // values that are known but not advertised
	limit     string   // said after max
	unique    bool     // no entry of a list twice
	entry     *field   // of a list
	fields    []field  // of an object
	example   string   // a value, as YAML on one line; for a field whose default is none
	pending   bool     // in notYet
}

// describe is the help with limits and default; nothing for an old key.
func (f field) describe() string {
	text := f.help
	if text == "" {
		return ""
	}

	if f.kind == kindWhole {
		text += fmt.Sprintf(", 1 to %d%s", f.max, f.limit)
	}

	if f.kind == kindList {
		text += fmt.Sprintf(", at most %d%s", f.max, f.limit)
	}

	text += "."

	if d := f.without(); d != "" {
		text += " Default: " + d + "."
	}

	if f.pending {
		text += " " + pendingText
	}

	return text
}

// without is what a field is for a class that says nothing about it.
func (f field) without() string {
	switch {
	case f.required || f.kind == kindObject:
		return ""
	case f.otherwise != "":
		return f.otherwise
	case f.def != nil:
		return fmt.Sprint(f.def)
	default:
		return "none"
	}
}

// fields are the keys of a class, in the order of the form.
func fields() []field {
	all := sizeFields()
	all = append(all, networkFields()...)
	all = append(all, placementFields()...)

	return markPending("", append(all, nodeFields()...))
}

// sizeFields say what a machine is made of.
func sizeFields() []field {
	return []field{
		{
			key: "project", title: "Project", kind: kindText, form: nameOrIDForm, required: true,
			help: "Name or ID of the Oxide project that the machines are made in", example: "talos",
		},
		{
			key: "description", title: "Description", kind: kindText, form: descriptionForm, example: "Workers of the shop",
			help: fmt.Sprintf("A line for people in the description of instance and disks, at most %d characters without [ and ]", maxDescription),
		},
		{
			key: "cpus", title: "vCPUs", kind: kindWhole, max: maxCPUs, def: defaultCPUs,
			help: "Number of virtual CPUs",
		},
		{
			key: "memory", title: "Memory (GiB)", kind: kindWhole, max: maxMemory, unit: gib, def: defaultMemory,
			help: "Memory in whole GiB",
		},
		{
			key: "boot_disk_size", title: "Boot disk (GiB)", kind: kindWhole, max: maxDistributed, unit: gib, def: defaultBootDisk,
			help: "Size of the boot disk in whole GiB, at least that of the Talos image",
		},
		{
			key: "disks", title: "Extra disks", kind: kindList, max: maxDisks, limit: " (12 with the boot disk)",
			help:    "Blank disks beside the boot disk, which the machine sees as NVMe disks",
			entry:   &field{kind: kindObject, title: "Disk", fields: diskFields()},
			example: "[{type: distributed, size: 100, name: data}, {type: local, size: 500, name: scratch}]",
		},
	}
}

func diskFields() []field {
	return []field{
		{
			key: "type", title: "Type", kind: kindEnum, def: DiskDistributed,
			values: []string{DiskDistributed, DiskLocal},
			help:   "distributed (replicated over sleds) or local (on the machine's own sled)",
			note:   "A local disk is lost with its sled, and the rack can not move its machine.",
		},
		{
			key: "size", title: "Size (GiB)", kind: kindWhole, max: maxLocal, unit: gib, required: true,
			help: "Size in whole GiB", limit: fmt.Sprintf(", at most %d for a distributed disk", maxDistributed),
		},
		{
			key: "name", title: "Name", kind: kindText, form: diskNameForm, otherwise: "data0 for the first, data1 for the second and so on",
			help: fmt.Sprintf("Beginning of the disk's name and of the serial number that the machine sees, at most %d of a-z, 0-9 and -", diskSerial),
		},
	}
}

// placementFields say where a machine runs and what keeps it running.
func placementFields() []field {
	return []field{
		{
			key: "anti_affinity_groups", title: "Anti-affinity groups", kind: kindList, max: maxGroups, unique: true,
			help:    "Names or IDs of existing anti-affinity groups of the project",
			entry:   &field{kind: kindText, form: nameOrIDForm, title: "Group", help: "Name or ID of an anti-affinity group"},
			example: "[etcd]", limit: " (machine_set_group counts as one)",
			note: "The groups themselves are never changed or removed.",
		},
		{
			key: "machine_set_group", title: "Spread each machine set", kind: kindEnum, def: GroupNone,
			values: []string{GroupNone, GroupAllow, GroupFail},
			help: "Groups made for each machine set to keep its machines on different sleds: " +
				"none, allow (as far as there is room) or fail (rather do not start)",
			note: fmt.Sprintf("A group of the rack has at most %d members. With `allow` a larger set gets more groups, "+
				"with `fail` it is refused. The groups are removed when they are empty and nobody needs them. "+
				"A machine request that belongs to no set gets none.", MaxSetGroupMembers),
		},
		{
			key: "cpu_platform", title: "CPU platform", kind: kindEnum, def: AMDMilan,
			values: []string{AMDMilan, AMDTurin, AMDTurinV2}, hidden: []string{amdTurinV2Published},
			help: "Least CPU generation of the sled that a machine runs on: amd_milan, amd_turin or amd_turin_v2",
		},
		{
			key: "auto_restart_policy", title: "Restart after failure", kind: kindEnum, def: RestartBestEffort,
			values: []string{RestartBestEffort, RestartNever},
			help:   "Whether the rack starts a failed instance again: best_effort or never",
		},
		{
			key: "on_stopped", title: "When found stopped", kind: kindEnum, def: StoppedLeave,
			values: []string{StoppedLeave, StoppedStart},
			help:   "What to do with a machine that somebody stopped: leave (and say so) or start",
		},
	}
}

// oldFields are the keys of the published provider's first generation. The
// schema knows them, the form does not show them.
func oldFields() []field {
	return []field{
		{key: "vcpus", kind: kindWhole, max: maxCPUs},
		{key: "disk_size", kind: kindWhole, max: maxDistributed, unit: gib},
		{key: "vpc", kind: kindText, form: nameForm},
		{key: "subnet", kind: kindText, form: nameForm},
	}
}
