package machineclass_test

import (
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// wrongClass is a part of a class that has a project, and the line that its user
// reads.
type wrongClass struct{ text, want string }

func wrongClasses() []wrongClass {
	return []wrongClass{
		// description
		{`description: "a [b]"`, `description: "a [b]" must be one line without [ and ]`},
		{`description: "a\nb"`, `description: "a\nb" must be one line without [ and ]`},
		{
			"description: " + strings.Repeat("a", 121),
			`description: "` + strings.Repeat("a", 40) + `…" has 121 characters, over the limit of 120`,
		},
		{"description: 5", "description: 5 is a number, must be text"},

		// units and sizes
		{"memory: 8192", "memory: 8192 is over the limit of 1536 GiB (sizes are in GiB; if MiB were meant: 8)"},
		{"memory: 16Gi", `memory: "16Gi" is text, must be a whole number of GiB: 16`},
		{`memory: "16 gb"`, `memory: "16 gb" is text, must be a whole number of GiB: 16`},
		{"boot_disk_size: 102400", "boot_disk_size: 102400 is over the limit of 1023 GiB (sizes are in GiB; if MiB were meant: 100)"},
		{"boot_disk_size: 20G", `boot_disk_size: "20G" is text, must be a whole number of GiB: 20`},
		{"cpus: 4GiB", `cpus: "4GiB" is text, must be a whole number`},
		{"cpus: 1e400", `cpus: "1e400" is text, must be a whole number`},
		{
			"disks: [{type: distributed, size: 102400}]",
			"disks[0].size: 102400 is over the limit of 1023 GiB for a distributed disk (sizes are in GiB; if MiB were meant: 100)",
		},

		// disks
		{"disks: [{size: 1, name: boot}]", `disks[0].name: "boot" must be 1 to 9 of a-z, 0-9 and -, a letter first, no - last, and not boot`},
		{"disks: [{size: 1, name: Data}]", `disks[0].name: "Data" must be 1 to 9 of a-z, 0-9 and -, a letter first, no - last, and not boot`},
		{
			"disks: [{size: 1, name: abcdefghij}]",
			`disks[0].name: "abcdefghij" must be 1 to 9 of a-z, 0-9 and -, a letter first, no - last, and not boot`,
		},
		{"disks: [{size: 1, name: a}, {size: 1, name: a}]", `disks[1].name: "a" is already that of disks[0]`},
		{"disks: [{size: 1}, {size: 1, name: data0}]", `disks[1].name: "data0" is already that of disks[0]`},
		{
			"disks: [{size: 1, sise: 2, typ: local}]",
			"disks[0].sise: unknown key, the nearest known is size; disks[0].typ: unknown key, the nearest known is type",
		},

		// fixed addresses
		{
			"network_interfaces: [{addresses: [10.0.0.256]}]",
			`network_interfaces[0].addresses[0]: "10.0.0.256" must be an IPv4 or IPv6 address`,
		},
		{"network_interfaces: [{addresses: [10.0.0]}]", `network_interfaces[0].addresses[0]: "10.0.0" must be an IPv4 or IPv6 address`},
		{
			`network_interfaces: [{addresses: ["10.0.0.5/24"]}]`,
			`network_interfaces[0].addresses[0]: "10.0.0.5/24" must be an IPv4 or IPv6 address`,
		},
		{"network_interfaces: [{addresses: [127.0.0.1]}]", `network_interfaces[0].addresses[0]: "127.0.0.1" is no address that a subnet has`},
		{
			`network_interfaces: [{addresses: ["fd00::1"]}]`,
			"network_interfaces[0].addresses[0]: fd00::1 is not of the interface's ip_config v4",
		},
		{
			"network_interfaces: [{ip_config: v6, addresses: [10.0.0.5]}]",
			"network_interfaces[0].addresses[0]: 10.0.0.5 is not of the interface's ip_config v6",
		},
		{
			`network_interfaces: [{ip_config: dual_stack, addresses: ["::ffff:102:304"]}]`,
			`network_interfaces[0].addresses[0]: "::ffff:102:304" must be written as the IPv4 address 1.2.3.4`,
		},
		{
			"network_interfaces: [{addresses: [10.0.0.5, 10.0.0.5]}]",
			"network_interfaces[0].addresses[1]: 10.0.0.5 is already in network_interfaces[0].addresses[0]",
		},
		{
			`network_interfaces: [{ip_config: v6, addresses: ["fd00::1", "fd00:0::1"]}]`,
			"network_interfaces[0].addresses[1]: fd00::1 is already in network_interfaces[0].addresses[0]",
		},
		{
			"network_interfaces: [{subnet_name: a, addresses: [10.0.0.5]}, {subnet_name: b, addresses: [10.0.0.5]}]",
			"network_interfaces[1].addresses[0]: 10.0.0.5 is already in network_interfaces[0].addresses[0]",
		},
		{"network_interfaces: [{addresses: 10.0.0.5}]", `network_interfaces[0].addresses: "10.0.0.5" is text, must be a list`},
		{"network_interfaces: [{address: 10.0.0.5}]", "network_interfaces[0].address: unknown key, the nearest known is addresses"},
		{
			`network_interfaces: [{addresses: ["fe80::1%eth0"]}]`,
			`network_interfaces[0].addresses[0]: "fe80::1%eth0" must be an IPv4 or IPv6 address`,
		},
		{"network_interfaces: [{addresses: [~]}]", "network_interfaces[0].addresses[0]: is empty"},
		{`network_interfaces: [{addresses: [""]}]`, "network_interfaces[0].addresses[0]: is empty"},
		{"network_interfaces: [{addresses: [5]}]", "network_interfaces[0].addresses[0]: 5 is a number, must be text"},

		// transit networks
		{
			"network_interfaces: [{transit_ips: [10.0.0.5/8]}]",
			`network_interfaces[0].transit_ips[0]: "10.0.0.5/8" has bits beyond its prefix, the network is 10.0.0.0/8`,
		},
		{
			"network_interfaces: [{transit_ips: [10.0.0.0]}]",
			`network_interfaces[0].transit_ips[0]: "10.0.0.0" must be a network such as 10.1.0.0/16`,
		},
		{
			"network_interfaces: [{transit_ips: [10.0.0.0/33]}]",
			`network_interfaces[0].transit_ips[0]: "10.0.0.0/33" must be a network such as 10.1.0.0/16`,
		},
		{
			`network_interfaces: [{transit_ips: ["fd00::/8"]}]`,
			"network_interfaces[0].transit_ips[0]: fd00::/8 is not of the interface's ip_config v4",
		},
		{
			"network_interfaces: [{transit_ips: [10.0.0.0/8, 10.1.0.0/16]}]",
			"network_interfaces[0].transit_ips[1]: 10.1.0.0/16 overlaps 10.0.0.0/8 of transit_ips[0]",
		},

		// external addresses
		{"external_ips: [{type: static}]", `external_ips[0].type: "static" is not one of ephemeral, floating`},
		{"external_ips: [{ip_version: v5}]", `external_ips[0].ip_version: "v5" is not one of v4, v6`},
		{"external_ips: [{ip_version: 4}]", "external_ips[0].ip_version: 4 is a number, must be text"},
		{
			"external_ips: [{pool: A}]",
			`external_ips[0].pool: "A" must be a name (1 to 63 of a-z, 0-9 and -, a letter first, no - last) or an ID`,
		},
		{"external_ips: [{ip_version: v6}]", "external_ips[0].ip_version: v6 is not of the primary interface's ip_config v4"},
		{
			"external_ips: [{}, {}]",
			"external_ips[1].ip_version: v4 is already that of external_ips[0], two ephemeral addresses must be of different IP versions",
		},
		{
			"external_ips: [{ip_version: v4}, {pool: a, ip_version: v4}]",
			"external_ips[1].ip_version: v4 is already that of external_ips[0], two ephemeral addresses must be of different IP versions",
		},
		{"external_ips: [{}, {pool: a}, {pool: b}]", "external_ips: 3 ephemeral entries are over the limit of 2, one of each IP version"},
		{"external_ips: [{floating_ips: [a]}]", "external_ips[0].floating_ips: are for the type floating, not for ephemeral"},
		{
			"external_ips: [{type: floating, floating_ips: [a], pool: b}]",
			"external_ips[0].floating_ips: name addresses that exist, which go without pool and ip_version",
		},
		{
			"external_ips: [{type: floating, floating_ips: [a], ip_version: v4}]",
			"external_ips[0].floating_ips: name addresses that exist, which go without pool and ip_version",
		},
		{
			"external_ips: [{type: floating, floating_ips: [a, a]}]",
			`external_ips[0].floating_ips[1]: "a" is already in external_ips[0].floating_ips[0]`,
		},
		{
			"external_ips: [{type: floating, floating_ips: [a]}, {type: floating, floating_ips: [b, a]}]",
			`external_ips[1].floating_ips[1]: "a" is already in external_ips[0].floating_ips[0]`,
		},
		{"external_ips: [{type: floating, name: a}]", "external_ips[0].name: unknown key, the nearest known is type"},
		{"external_ips: [" + strings.Repeat("{type: floating},", 33) + "]", "external_ips: 33 entries are over the limit of 32 in all"},
		{
			"network_interfaces: [{ip_config: v6}]\nexternal_ips: [{type: floating}]",
			"external_ips[0].ip_version: v4 is not of the primary interface's ip_config v6",
		},

		// groups
		{"machine_set_group: always", `machine_set_group: "always" is not one of none, allow, fail`},
		{"machine_set_group: false", "machine_set_group: false is a boolean, must be text"},
		{
			"machine_set_group: fail\nanti_affinity_groups: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p]",
			"anti_affinity_groups: 16 entries and machine_set_group are over the limit of 16",
		},

		// choices
		{"on_stopped: restart", `on_stopped: "restart" is not one of leave, start`},
		{"hostname: worker-1", `hostname: "worker-1" is not one of platform, pinned`},
		{`hostname: ""`, `hostname: "" is not one of platform, pinned`},
		{"image_scope: global", `image_scope: "global" is not one of auto, silo, project`},

		// nodes
		{"topology: west", "topology: is text, must be keys with values"},
		{
			`topology: {region: "a b"}`,
			`topology.region: "a b" must be a label's value: 1 to 63 of letters, digits, -, _ and ., a letter or digit first and last`,
		},
		{"topology: {zone: 1}", "topology.zone: 1 is a number, must be text"},
		{"topology: {rack: r1}", "topology.rack: unknown key, the nearest known is zone"},
		{
			"topology: {zone: " + strings.Repeat("a", 64) + "}",
			`topology.zone: "` + strings.Repeat("a", 40) + `…" must be a label's value: 1 to 63 of letters, digits, -, _ and ., a letter or digit first and last`,
		},
		{"node_labels: {a: b}", "node_labels: is keys with values, must be a list"},
		{"node_labels: [a]", `node_labels[0]: "a" must be key=value as Kubernetes takes them, such as example.com/tier=gold`},
		{`node_labels: ["a=b c"]`, `node_labels[0]: "a=b c" must be key=value as Kubernetes takes them, such as example.com/tier=gold`},
		{"node_labels: [a=1, a=2]", "node_labels[1]: the label a is already given in node_labels[0]"},
		{"node_labels: [a=1, a=1]", `node_labels[1]: "a=1" is already in node_labels[0]`},
		{
			"node_labels: [kubernetes.io/role=x]",
			`node_labels[0]: "kubernetes.io/role=x" is a label that a node may not give itself (kubernetes.io); use a domain of your own`,
		},
		{
			"node_labels: [node-role.kubernetes.io/worker=]",
			`node_labels[0]: "node-role.kubernetes.io/worker=" is a label that a node may not give itself (node-role.kubernetes.io); use a domain of your own`,
		},
		{
			"node_labels: [node-restriction.kubernetes.io/a=b]",
			`node_labels[0]: "node-restriction.kubernetes.io/a=b" is a label that a node may not give itself (node-restriction.kubernetes.io)`,
		},
		{
			"node_labels: [a.node-restriction.kubernetes.io/a=b]",
			`node_labels[0]: "a.node-restriction.kubernetes.io/a=b" is a label that a node may not give itself (node-restriction.kubernetes.io)`,
		},
		{"node_labels: [kubernetes.io/hostname=a]", `node_labels[0]: "kubernetes.io/hostname=a" is set by kubelet itself`},
		{"node_labels: [topology.kubernetes.io/zone=a]", `node_labels[0]: "topology.kubernetes.io/zone=a" is what topology.zone is for`},
		{"node_labels: [a..b/c=d]", `node_labels[0]: "a..b/c=d" has a prefix that is no DNS name`},
		{"node_labels: [-a/c=d]", `node_labels[0]: "-a/c=d" must be key=value as Kubernetes takes them, such as example.com/tier=gold`},
		{
			"node_labels: [a=" + strings.Repeat("b", 64) + "]",
			`node_labels[0]: "a=` + strings.Repeat("b", 38) + `…" must be key=value as Kubernetes takes them, such as example.com/tier=gold`,
		},
		{
			"node_labels: [Example.com/a=b]",
			`node_labels[0]: "Example.com/a=b" must be key=value as Kubernetes takes them, such as example.com/tier=gold`,
		},

		// image
		{"extensions: [iscsi-tools]", `extensions[0]: "iscsi-tools" must be vendor/name without a version, such as siderolabs/iscsi-tools`},
		{
			`extensions: ["siderolabs/iscsi-tools:v0.1"]`,
			`extensions[0]: "siderolabs/iscsi-tools:v0.1" must be vendor/name without a version, such as siderolabs/iscsi-tools`,
		},
		{"extensions: [siderolabs/a, siderolabs/a]", `extensions[1]: "siderolabs/a" is already in extensions[0]`},
		{"extensions: siderolabs/a", `extensions: "siderolabs/a" is text, must be a list`},
		{
			"extensions: [ghcr.io/siderolabs/a]",
			`extensions[0]: "ghcr.io/siderolabs/a" must be vendor/name without a version, such as siderolabs/iscsi-tools`,
		},
		{`kernel_args: ["a b"]`, `kernel_args[0]: "a b" must be one argument of printable ASCII without spaces and "`},
		{`kernel_args: ["a=\"b\""]`, `kernel_args[0]: "a=\"b\"" must be one argument of printable ASCII without spaces and "`},
		{"kernel_args: [siderolink.api=x]", `kernel_args[0]: "siderolink.api=x" is set by Omni and the image`},
		{"kernel_args: [-talos.platform]", `kernel_args[0]: "-talos.platform" is set by Omni and the image`},
		{"kernel_args: [a, a]", `kernel_args[1]: "a" is already in kernel_args[0]`},
		{
			"kernel_args: [" + strings.Repeat("a", 257) + "]",
			`kernel_args[0]: "` + strings.Repeat("a", 40) + `…" has 257 characters, over the limit of 256`,
		},
		{"kernel_args: [ä]", `kernel_args[0]: "ä" must be one argument of printable ASCII without spaces and "`},
		{`kernel_args: ""`, `kernel_args: "" is text, must be a list`},

		// certificates
		{"trusted_cas: x", "trusted_cas: must be PEM: -----BEGIN CERTIFICATE----- and so on"},
		{`trusted_cas: "-----BEGIN CERTIFICATE-----\nAA"`, "trusted_cas: certificate 1 has no end"},
		{
			`trusted_cas: "-----BEGIN CERTIFICATE-----\n??\n-----END CERTIFICATE-----"`,
			"trusted_cas: certificate 1: illegal base64 data at input byte 0",
		},
		{
			`trusted_cas: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"`,
			"trusted_cas: certificate 1: x509: malformed certificate",
		},
		{"trusted_cas: []", "trusted_cas: is a list, must be text"},

		// what people call things elsewhere
		{"labels: [a=b]", "labels: unknown key, the nearest known is node_labels"},
		{"zone: a", "zone: unknown key, the nearest known is topology.zone"},
		{"nics: []", "nics: unknown key, the nearest known is network_interfaces"},
		{"floating_ips: [a]", "floating_ips: unknown key, the nearest known is external_ips"},
		{"hostnames: pinned", "hostnames: unknown key, the nearest known is hostname"},
		{"vcpu: 2", "vcpu: unknown key, the nearest known is cpus"},
		{"disks: [{size: 1, type: local, format: ext4}]", "disks[0].format: unknown key, the nearest known is name"},

		// several at once
		{
			"cpus: 0\nhostname: x\nnetwork_interfaces: [{addresses: [x], mtu: 1}]\nexternal_ips: [{}, {}]\nextensions: [x]",
			`cpus: 0 is under the least of 1; hostname: "x" is not one of platform, pinned; network_interfaces[0].addresses[0]: "x" must be an IPv4 or IPv6 address; network_interfaces[0].mtu: unknown key, the nearest known is vpc_name; extensions[0]: "x" must be vendor/name without a version, such as siderolabs/iscsi-tools; external_ips[1].ip_version: v4 is already that of external_ips[0], two ephemeral addresses must be of different IP versions`,
		},
	}
}

// Invariant: a user reads what is wrong, where, and what is right.
func TestWrongFields(t *testing.T) {
	t.Parallel()

	for _, test := range wrongClasses() {
		_, err := machineclass.Parse("project: a\n" + test.text)
		if err == nil {
			t.Errorf("%q accepted, want %q", test.text, test.want)
		} else if err.Error() != test.want {
			t.Errorf("%q:\n got %s\nwant %s", test.text, err, test.want)
		}
	}
}

// Invariant: what Omni's form refuses the daemon refuses too, so that nobody who
// passes by the form gets further.
func TestWhatTheSchemaRefusesIsRefused(t *testing.T) {
	t.Parallel()

	schema := compiled(t)
	caught := 0

	for _, test := range wrongClasses() {
		text := "project: a\n" + test.text
		if validate(schema, text) == nil {
			continue
		}

		caught++

		if _, err := machineclass.Parse(text); err == nil {
			t.Errorf("%q is refused by the schema only", text)
		}
	}

	// What two values must agree on, and certificates, only the daemon knows.
	if all := len(wrongClasses()); caught*10 < all*6 {
		t.Errorf("the form refuses only %d of %d", caught, all)
	}
}
