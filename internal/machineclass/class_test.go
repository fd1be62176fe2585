package machineclass_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

const projectID = "6f2d8a0e-5b1c-4d3e-9f70-1a2b3c4d5e6f"

// smallest is what a class with nothing but a project means.
func smallest() machineclass.Class {
	return machineclass.Class{
		Project: "talos", CPUs: 1, Memory: 4, BootDiskSize: 10,
		NICs:              []machineclass.NIC{{IPConfig: "v4", SubnetName: "default", VPCName: "default"}},
		AutoRestartPolicy: "best_effort", CPUPlatform: "amd_milan", SetGroup: "none", OnStopped: "leave", Hostname: "platform",
		ImageScope: "auto",
	}
}

// equal takes empty lists for none.
func equal(a, b machineclass.Class) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }

func TestParseFillsInDefaults(t *testing.T) {
	t.Parallel()

	with := func(change func(*machineclass.Class)) machineclass.Class {
		c := smallest()
		change(&c)

		return c
	}

	for name, test := range map[string]struct {
		text string
		want machineclass.Class
	}{
		"project alone": {"project: talos", smallest()},
		"JSON":          {`{"project": "talos"}`, smallest()},
		"fields left empty": {
			"project: talos\ncpus:\nmemory: ~\ndisks:\nnetwork_interfaces: []\ncpu_platform: null\nanti_affinity_groups:", smallest(),
		},
		"project by ID": {"project: " + projectID, with(func(c *machineclass.Class) { c.Project = projectID })},
		"numbers in other forms": {
			"project: talos\ncpus: 0x10\nmemory: 32.0\nboot_disk_size: 1e2",
			with(func(c *machineclass.Class) { c.CPUs, c.Memory, c.BootDiskSize = 16, 32, 100 }),
		},
		"anchors": {
			"project: &name talos\nanti_affinity_groups: [*name]",
			with(func(c *machineclass.Class) { c.AntiAffinityGroups = []string{"talos"} }),
		},
		"everything": {
			`project: talos
cpus: 8
memory: 32
boot_disk_size: 40
disks:
  - {type: distributed, size: 100}
  - {type: local, size: 2000}
  - {size: 1}
network_interfaces:
  - {ip_config: dual_stack, subnet_name: nodes, vpc_name: prod}
  - {ip_config: v6, subnet_name: storage, vpc_name: prod}
auto_restart_policy: never
cpu_platform: amd_turin
anti_affinity_groups: [etcd, ` + projectID + `]
enable_jumbo_frames: true
`,
			with(func(c *machineclass.Class) {
				c.CPUs, c.Memory, c.BootDiskSize = 8, 32, 40
				c.Disks = []machineclass.Disk{
					{Type: "distributed", Size: 100, Name: "data0"}, {Type: "local", Size: 2000, Name: "data1"},
					{Type: "distributed", Size: 1, Name: "data2"},
				}
				c.NICs = []machineclass.NIC{
					{IPConfig: "dual_stack", SubnetName: "nodes", VPCName: "prod"},
					{IPConfig: "v6", SubnetName: "storage", VPCName: "prod"},
				}
				c.AutoRestartPolicy, c.CPUPlatform = "never", "amd_turin"
				c.AntiAffinityGroups, c.EnableJumboFrames = []string{"etcd", projectID}, true
			}),
		},
		"published spelling of the platform": {
			"project: talos\ncpu_platform: amd_turinv2", with(func(c *machineclass.Class) { c.CPUPlatform = "amd_turin_v2" }),
		},
		"API's spelling of the platform": {
			"project: talos\ncpu_platform: amd_turin_v2", with(func(c *machineclass.Class) { c.CPUPlatform = "amd_turin_v2" }),
		},
		"old keys": {
			"project: talos\nvcpus: 4\nmemory: 16\ndisk_size: 20\nvpc: prod\nsubnet: nodes",
			with(func(c *machineclass.Class) {
				c.CPUs, c.Memory, c.BootDiskSize = 4, 16, 20
				c.NICs = []machineclass.NIC{{IPConfig: "v4", SubnetName: "nodes", VPCName: "prod"}}
			}),
		},
		"old keys bring the old defaults": {
			"project: talos\nsubnet: nodes",
			with(func(c *machineclass.Class) {
				c.CPUs, c.Memory = 2, 8
				c.NICs[0].SubnetName = "nodes"
			}),
		},
	} {
		got, err := machineclass.Parse(test.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !equal(got, test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, test.want)
		}
	}
}

const (
	nameRule = "(1 to 63 of a-z, 0-9 and -, a letter first, no - last)"
	badID    = " must be a name " + nameRule + " or an ID"
)

// Invariant: a user reads every mistake at once, each with field, value and
// limit, on one line.
func TestWrongClasses(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ text, want string }{
		// documents
		{"", "project: is required"},
		{"# nothing", "project: is required"},
		{"~", "project: is required"},
		{"{}", "project: is required"},
		{"project:", "project: is required"},
		{"talos", "the class is text, must be keys with values"},
		{"- project: talos", "the class is a list, must be keys with values"},
		{"42", "the class is a number, must be keys with values"},
		{"project: talos\n---\nproject: talos", "more than one YAML document"},

		// keys
		{"project: a\ncpu: 4", "cpu: unknown key, the nearest known is cpus"},
		{"project: a\nCPUs: 4", "CPUs: unknown key, the nearest known is cpus"},
		{"project: a\nboot-disk-size: 4", "boot-disk-size: unknown key, the nearest known is boot_disk_size"},
		{"project: a\nproject: b", "project: is given twice"},
		{"project: a\n? [x]\n: 1", `"": unknown key, the nearest known is cpus`},
		{"project: a\n\"a; b\": 1", `"a; b": unknown key, the nearest known is cpus`},
		{"project: a\n<<: {cpus: 4}", `<<: unknown key, the nearest known is cpus`},
		{"project: a\ndisks: [{sise: 1, size: 1}]", "disks[0].sise: unknown key, the nearest known is size"},
		{"project: a\nnetwork_interfaces: [{subnet: a}]", "network_interfaces[0].subnet: unknown key, the nearest known is subnet_name"},

		// names
		{"project: My Project", `project: "My Project"` + badID},
		{"project: 1a", `project: "1a"` + badID},
		{"project: a-", `project: "a-"` + badID},
		{"project: 12", "project: 12 is a number, must be text"},
		{"project: true", "project: true is a boolean, must be text"},
		{"project: 2026-01-01", "project: 2026-01-01 is a date, must be text"},
		{"project: [a]", "project: is a list, must be text"},
		{"project: {a: b}", "project: is keys with values, must be text"},
		{"project: abcdef0123456789abcdef0123456789", `project: "abcdef0123456789abcdef0123456789"` + badID},
		{"project: " + strings.Repeat("a", 64), `project: "` + strings.Repeat("a", 40) + `…"` + badID},
		{"project: \"a\\nb\"", `project: "a\nb"` + badID},

		// numbers
		{"project: a\ncpus: 255", "cpus: 255 is over the limit of 254"},
		{"project: a\ncpus: 0", "cpus: 0 is under the least of 1"},
		{"project: a\ncpus: -4", "cpus: -4 is under the least of 1"},
		{"project: a\ncpus: 1.5", "cpus: 1.5 is not a whole number"},
		{"project: a\ncpus: .nan", "cpus: .nan is not a whole number"},
		{"project: a\ncpus: .inf", "cpus: .inf is not a whole number"},
		{"project: a\ncpus: '4'", `cpus: "4" is text, must be a whole number`},
		{"project: a\ncpus: true", "cpus: true is a boolean, must be a whole number"},
		{"project: a\ncpus: 99999999999999999999", "cpus: 99999999999999999999 is over the limit of 254"},
		{"project: a\ncpus: -99999999999999999999", "cpus: -99999999999999999999 is under the least of 1"},
		{"project: a\nmemory: 1537", "memory: 1537 is over the limit of 1536 GiB"},
		{"project: a\nmemory: 0", "memory: 0 is under the least of 1 GiB"},
		{"project: a\nmemory: 8GiB", `memory: "8GiB" is text, must be a whole number of GiB: 8`},
		{"project: a\nmemory: 0.5", "memory: 0.5 is not a whole number of GiB"},
		{"project: a\nmemory: 8589934592", "memory: 8589934592 is over the limit of 1536 GiB (sizes are in GiB, not bytes: 8)"},
		{"project: a\nboot_disk_size: 1024", "boot_disk_size: 1024 is over the limit of 1023 GiB"},
		{"project: a\nboot_disk_size: 10737418240", "boot_disk_size: 10737418240 is over the limit of 1023 GiB (sizes are in GiB, not bytes: 10)"},

		// choices
		{"project: a\ncpu_platform: intel", `cpu_platform: "intel" is not one of amd_milan, amd_turin, amd_turin_v2`},
		{"project: a\nauto_restart_policy: always", `auto_restart_policy: "always" is not one of best_effort, never`},
		{"project: a\nauto_restart_policy: false", "auto_restart_policy: false is a boolean, must be text"},
		{"project: a\nenable_jumbo_frames: yes", `enable_jumbo_frames: "yes" is text, must be true or false`},
		{"project: a\nenable_jumbo_frames: 1", "enable_jumbo_frames: 1 is a number, must be true or false"},
		{"project: a\nenable_jumbo_frames: []", "enable_jumbo_frames: is a list, must be true or false"},

		// disks
		{"project: a\ndisks: 100", "disks: 100 is a number, must be a list"},
		{"project: a\ndisks: {size: 1}", "disks: is keys with values, must be a list"},
		{"project: a\ndisks: [100]", "disks[0]: is a number, must be keys with values"},
		{"project: a\ndisks: [~]", "disks[0]: is empty"},
		{"project: a\ndisks: [{}]", "disks[0].size: is required"},
		{"project: a\ndisks: [{size: 1, type: nvme}]", `disks[0].type: "nvme" is not one of distributed, local`},
		{"project: a\ndisks: [{size: 1}, {size: 1024}]", "disks[1].size: 1024 is over the limit of 1023 GiB for a distributed disk"},
		{"project: a\ndisks: [{type: local, size: 0}]", "disks[0].size: 0 is under the least of 1 GiB"},
		{
			"project: a\ndisks: [{type: local, size: 107374182400}]",
			"disks[0].size: 107374182400 is over the limit of 10485760 GiB (sizes are in GiB, not bytes: 100)",
		},
		{
			"project: a\ndisks: [" + strings.Repeat("{size: 1},", 12) + "]",
			"disks: 12 entries are over the limit of 11 (12 with the boot disk)",
		},

		// interfaces
		{"project: a\nnetwork_interfaces: [{ip_config: v5}]", `network_interfaces[0].ip_config: "v5" is not one of v4, v6, dual_stack`},
		{"project: a\nnetwork_interfaces: [{}, {}]", `network_interfaces[1].subnet_name: "default" is already that of network_interfaces[0], each interface needs its own subnet`},
		{
			"project: a\nnetwork_interfaces: [{}, {vpc_name: b, subnet_name: b}]",
			`network_interfaces[1].vpc_name: "b" is not "default", all interfaces must be in one VPC`,
		},
		{
			"project: a\nnetwork_interfaces: [{vpc_name: " + projectID + "}]",
			`network_interfaces[0].vpc_name: "` + projectID + `" must be a name: 1 to 63 of a-z, 0-9 and -, a letter first, no - last`,
		},
		{
			"project: a\nnetwork_interfaces: [" + strings.Join([]string{
				"{subnet_name: a}", "{subnet_name: b}", "{subnet_name: c}", "{subnet_name: d}", "{subnet_name: e}",
				"{subnet_name: f}", "{subnet_name: g}", "{subnet_name: h}", "{subnet_name: i}",
			}, ",") + "]",
			"network_interfaces: 9 entries are over the limit of 8",
		},

		// groups
		{"project: a\nanti_affinity_groups: [a, b, a]", `anti_affinity_groups[2]: "a" is already in anti_affinity_groups[0]`},
		{"project: a\nanti_affinity_groups: [A]", `anti_affinity_groups[0]: "A"` + badID},
		{"project: a\nanti_affinity_groups: a", `anti_affinity_groups: "a" is text, must be a list`},
		{
			"project: a\nanti_affinity_groups: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q]",
			"anti_affinity_groups: 17 entries are over the limit of 16 (machine_set_group counts as one)",
		},

		// old keys
		{"project: a\nvcpus: 2\ncpus: 2", "vcpus: is an old key for cpus, which is given too"},
		{"project: a\nvcpus: 300", "vcpus: 300 is over the limit of 254"},
		{"project: a\ndisk_size: 0", "disk_size: 0 is under the least of 1 GiB"},
		{"project: a\nsubnet: x\nnetwork_interfaces: [{}]", "subnet: is an old key for network_interfaces, which is given too"},

		// several at once
		{
			"cpus: 300\nmemory: 8589934592\nram: 4",
			"cpus: 300 is over the limit of 254; memory: 8589934592 is over the limit of 1536 GiB " +
				"(sizes are in GiB, not bytes: 8); ram: unknown key, the nearest known is memory; project: is required",
		},
		{
			"project: A\ndisks: [{size: 2000}]\nnetwork_interfaces: [{}, {}]",
			`project: "A"` + badID + "; disks[0].size: 2000 is over the limit of 1023 GiB for a distributed disk; " +
				`network_interfaces[1].subnet_name: "default" is already that of network_interfaces[0], each interface needs its own subnet`,
		},
	} {
		_, err := machineclass.Parse(test.text)
		if err == nil {
			t.Errorf("%q accepted, want %q", test.text, test.want)
		} else if err.Error() != test.want {
			t.Errorf("%q:\n got %s\nwant %s", test.text, err, test.want)
		}
	}
}

func TestSyntaxErrorsAreOneLine(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"project: [", "\tproject: a", "project: a\n  cpus: 4\n x", "a: b: c", "project: *x", "\xff", "a: !!binary \"*\""} {
		_, err := machineclass.Parse(text)
		if err == nil || strings.ContainsAny(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"project: a", "project: a\ndisks: [{size: 1}]", "a: &a [*a]", "project: &a b\nvpc: *a", "? a", "{<<: {project: a}}",
		"project: a\nnetwork_interfaces: [{ip_config: dual_stack, addresses: [10.0.0.9, 'fd00::9'], transit_ips: [10.0.0.0/8]}]",
		"project: a\nexternal_ips: [{pool: a}, {type: floating, floating_ips: [a]}]\nnode_labels: [a.b/c=d]\nkernel_args: [-a]\nextensions: [a/b]",
		"project: a\ntopology: {zone: z}\ntrusted_cas: '-----BEGIN CERTIFICATE-----AA-----END CERTIFICATE-----'\ndescription: a",
		"disks: &a [*a]", "topology: &a {zone: *a}"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		class, err := machineclass.Parse(text)

		// Invariant: every text gives a class that the rack's limits allow,
		// or one line that says why not.
		var mistakes machineclass.Mistakes

		switch {
		case err == nil:
			if class.CPUs < 1 || class.CPUs > 254 || class.Memory < 1 || class.Memory > 1536 || class.BootDiskSize < 1 ||
				class.BootDiskSize > 1023 || len(class.NICs) < 1 || class.Project == "" {
				t.Fatalf("%q: %+v", text, class)
			}
		case !errors.As(err, &mistakes) || strings.ContainsAny(err.Error(), "\n\r"):
			t.Fatalf("%q: %q", text, err)
		}
	})
}
