package machineclass_test

import (
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// publishedClasses are classes as users of the published provider have them, by
// its releases, and what machines of them were.
func publishedClasses() map[string]struct {
	text string
	want func(*machineclass.Class)
} {
	type class = struct {
		text string
		want func(*machineclass.Class)
	}

	first := func(c *machineclass.Class) { c.CPUs, c.Memory = 2, 8 }

	return map[string]class{
		"v0.1, all keys": {"project: talos\nvcpus: 4\nmemory: 16\ndisk_size: 50\nvpc: prod\nsubnet: nodes\n", func(c *machineclass.Class) {
			c.CPUs, c.Memory, c.BootDiskSize = 4, 16, 50
			c.NICs = []machineclass.NIC{{IPConfig: "v4", VPCName: "prod", SubnetName: "nodes"}}
		}},
		"v0.1, defaults by the old disk":   {"project: talos\ndisk_size: 10\n", first},
		"v0.1, defaults by the old CPUs":   {"project: talos\nvcpus: 2\n", first},
		"v0.1, defaults by the old VPC":    {"project: talos\nvpc: default\n", first},
		"v0.1, defaults by the old subnet": {"project: talos\nsubnet: default\n", first},
		"v0.4, what is required": {`project: talos
cpus: 1
memory: 4
boot_disk_size: 10
network_interfaces: [{ip_config: v4, vpc_name: default, subnet_name: default}]
auto_restart_policy: best_effort
cpu_platform: amd_milan
`, func(*machineclass.Class) {}},
		"v0.5, all keys": {`project: talos
cpus: 16
memory: 64
boot_disk_size: 200
disks:
  - {type: distributed, size: 100}
  - {type: local, size: 500}
network_interfaces:
  - {ip_config: dual_stack, subnet_name: nodes, vpc_name: prod}
  - {ip_config: v6, subnet_name: storage, vpc_name: prod}
auto_restart_policy: never
cpu_platform: amd_turinv2
anti_affinity_groups: [etcd]
enable_jumbo_frames: true
`, func(c *machineclass.Class) {
			c.CPUs, c.Memory, c.BootDiskSize = 16, 64, 200
			c.Disks = []machineclass.Disk{{Type: "distributed", Size: 100, Name: "data0"}, {Type: "local", Size: 500, Name: "data1"}}
			c.NICs = []machineclass.NIC{
				{IPConfig: "dual_stack", VPCName: "prod", SubnetName: "nodes"}, {IPConfig: "v6", VPCName: "prod", SubnetName: "storage"},
			}
			c.AutoRestartPolicy, c.CPUPlatform = "never", "amd_turin_v2"
			c.AntiAffinityGroups, c.EnableJumboFrames = []string{"etcd"}, true
		}},
	}
}

// Invariant: a class of the published provider passes Omni's check and ours
// unchanged, is carried out, and means the machine that it meant there.
func TestClassesOfThePublishedProvider(t *testing.T) {
	t.Parallel()

	for name, test := range publishedClasses() {
		want := smallest()
		test.want(&want)

		if err := validate(compiled(t), test.text); err != nil {
			t.Errorf("%s: the schema says: %v", name, err)
		}

		got, err := machineclass.Parse(test.text)
		if err == nil {
			err = got.NotYet()
		}

		if err != nil || !equal(got, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, got, want)
		}
	}
}

// What the published provider refused, or ignored without a word, has a reason
// here.
func TestErrorsOfThePublishedProvider(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"cpus: 2":                         "project: is required",
		"project: a\ncpus: 2\ncores: 4":   "cores: unknown key, the nearest known is cpus",
		"project: a\nvcpus: 2\ncpus: 4":   "vcpus: is an old key for cpus, which is given too",
		"project: a\nmemory: 17179869184": "memory: 17179869184 is over the limit of 1536 GiB (sizes are in GiB, not bytes: 16)",
		"project: a\nvpc: prod\nnetwork_interfaces: [{vpc_name: prod}]": "vpc: is an old key for network_interfaces, which is given too",
		"project: a\nauto_restart_policy: ''":                           `auto_restart_policy: "" is not one of best_effort, never`,
	} {
		if _, err := machineclass.Parse(text); err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}
