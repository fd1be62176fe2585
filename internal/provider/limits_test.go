package provider

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// Labels are short so that their config patch is not packed: Omni's client keeps
// what it unpacks with beyond a bubble of fake time.

// repeated writes n entries of a list.
func repeated(n int, format string) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(format, i)
	}

	return "[" + strings.Join(entries, ", ") + "]"
}

// atTheLimit has each field of a class at its limit, and beyond has it one beyond
// with the line that a user sees.
func atTheLimit() (class map[string]string, beyond map[string][2]string) {
	long := strings.Repeat("x", 120)

	return map[string]string{
			"project": "demo", "description": long, "cpus": "254", "memory": "1536", "boot_disk_size": "1023",
			"disks":                repeated(11, "{size: 1, name: disk%d}"),
			"network_interfaces":   repeated(8, "{subnet_name: s%d}"),
			"anti_affinity_groups": repeated(15, "g%d"), "machine_set_group": "allow",
			"cpu_platform": "amd_turin_v2", "auto_restart_policy": "never", "on_stopped": "start", "enable_jumbo_frames": "true",
			"hostname": "pinned", "topology": "{region: " + strings.Repeat("r", 63) + "}", "node_labels": repeated(64, "a.b/l%d=y"),
			"extensions": repeated(64, "siderolabs/extension%d"), "kernel_args": repeated(64, "argument%d=1"),
		}, map[string][2]string{
			"project":            {strings.Repeat("p", 64), "project: "},
			"description":        {long + "x", "description: "},
			"cpus":               {"255", "cpus: 255 is over the limit of 254"},
			"memory":             {"1537", "memory: 1537 is over the limit of 1536 GiB"},
			"boot_disk_size":     {"1024", "boot_disk_size: 1024 is over the limit of 1023 GiB"},
			"disks":              {repeated(12, "{size: 1, name: disk%d}"), "disks: 12 entries are over the limit of 11 (12 with the boot disk)"},
			"network_interfaces": {repeated(9, "{subnet_name: s%d}"), "network_interfaces: 9 entries are over the limit of 8"},
			"anti_affinity_groups": {
				repeated(16, "g%d"), "anti_affinity_groups: 16 entries and machine_set_group are over the limit of 16",
			},
			"machine_set_group":   {"always", `machine_set_group: "always" is not one of none, allow, fail`},
			"cpu_platform":        {"amd_turin_v3", `cpu_platform: "amd_turin_v3" is not one of amd_milan, amd_turin, amd_turin_v2`},
			"auto_restart_policy": {"always", `auto_restart_policy: "always" is not one of best_effort, never`},
			"on_stopped":          {"restart", `on_stopped: "restart" is not one of leave, start`},
			"enable_jumbo_frames": {"2", "enable_jumbo_frames: 2 is a number, must be true or false"},
			"hostname":            {"fixed", `hostname: "fixed" is not one of platform, pinned`},
			"topology":            {"{region: " + strings.Repeat("r", 64) + "}", "topology.region: "},
			"node_labels":         {repeated(65, "a.b/l%d=y"), "node_labels: 65 entries are over the limit of 64"},
			"extensions":          {repeated(65, "siderolabs/extension%d"), "extensions: 65 entries are over the limit of 64"},
			"kernel_args":         {repeated(65, "argument%d=1"), "kernel_args: 65 entries are over the limit of 64"},
		}
}

// limitsElsewhere are fields whose limits other tests show.
var limitsElsewhere = []string{"external_ips", "image_scope", "trusted_cas"}

func written(class map[string]string) string {
	var lines []string
	for key, value := range class {
		lines = append(lines, key+": "+value)
	}

	slices.Sort(lines)

	return strings.Join(lines, "\n") + "\n"
}

// Invariant: each field of a class is seen in the rack's instance, or in the
// node's config, at its limit; one beyond is refused with its limit.
func TestEachFieldAtItsLimitIsThereAndOneBeyondIsRefused(t *testing.T) {
	t.Parallel()

	class, beyond := atTheLimit()

	var form struct {
		Properties map[string]struct{ Type any }
	}

	if err := json.Unmarshal([]byte(machineclass.Schema()), &form); err != nil {
		t.Fatal(err)
	}

	for key := range form.Properties {
		if old := slices.Contains([]string{"vcpus", "disk_size", "vpc", "subnet"}, key); class[key] == "" && !old && !slices.Contains(limitsElsewhere, key) {
			t.Errorf("nothing here uses %s", key)
		}
	}

	for key, b := range beyond {
		wrong, _ := atTheLimit()
		wrong[key] = b[0]

		_, err := machineclass.Parse(written(wrong))
		if err == nil || !strings.HasPrefix(err.Error(), b[1]) {
			t.Errorf("%s: %v, want %s", key, err, b[1])
		}
	}

	bubble(t, func(_ *testing.T, b *bench) {
		b.furnish()
		b.start()
		b.askIn("talos-workers", theRequest, written(class))
		b.untilStage(theRequest, stageProvisioned)
		b.checkAtTheLimit()
	}, bothVersions, func(s *setup) {
		s.rack.JumboFrames = true
		s.rack.Sleds = []simrack.Sled{{Name: "large", CPUs: 512, Memory: 4 << 40, Platform: "amd_turin_v2"}}
	})
}

// checkAtTheLimit looks at the machine of the class at the limits.
func (b *bench) checkAtTheLimit() {
	b.t.Helper()

	ctx, state := b.t.Context(), b.stored(theRequest).TypedSpec().Value

	i, err := b.rack.ViewInstance(ctx, state.GetInstanceId())
	b.ok(err)

	if i.Ncpus != 254 || i.Memory != 1536*gib || i.CpuPlatform != "amd_turin_v2" || i.AutoRestartPolicy != "never" ||
		i.EnableJumboFrames == nil || !*i.EnableJumboFrames || !strings.Contains(i.Description, strings.Repeat("x", 120)) {
		b.t.Errorf("the instance is %+v", i)
	}

	disks, err := b.rack.SeekInstanceDisks(ctx, i.Id, nil)
	b.ok(err)

	boot := slices.IndexFunc(disks, func(d oxide.Disk) bool { return d.Id == i.BootDiskId })
	if len(disks) != 12 || boot < 0 || disks[boot].Size != 1023*gib {
		b.t.Errorf("it has the disks %+v", disks)
	}

	nics, err := b.sdk().InstanceNetworkInterfaceListAllPages(ctx, oxide.InstanceNetworkInterfaceListParams{Instance: oxide.NameOrId(i.Id)})
	b.ok(err)

	groups, err := b.sdk().InstanceAntiAffinityGroupListAllPages(ctx, oxide.InstanceAntiAffinityGroupListParams{Instance: oxide.NameOrId(i.Id)})
	b.ok(err)

	if len(nics) != 8 || len(groups) != 16 {
		b.t.Errorf("it has %d interfaces and %d groups", len(nics), len(groups))
	}

	if plan := state.GetPlan(); plan.GetOnStopped() != "start" {
		b.t.Errorf("when found stopped: %q", plan.GetOnStopped())
	}

	asked := b.schematics.registered[0].Customization
	if len(asked.SystemExtensions.OfficialExtensions) != 64 || len(asked.ExtraKernelArgs) != 64 {
		b.t.Errorf("the schematic is %+v", asked)
	}

	var config string

	for _, p := range b.patches(theRequest) {
		data, err := p.TypedSpec().Value.GetUncompressedData()
		b.ok(err)

		config += string(data.Data())

		data.Free()
	}

	for _, want := range []string{"providerID: oxide://" + i.Id, "a.b/l63", strings.Repeat("r", 63), "hostname: " + theRequest} {
		if !strings.Contains(config, want) {
			b.t.Errorf("the config patches say nothing of %s", want)
		}
	}
}

// Invariant: classes of the published provider, of both generations of keys, make
// the machines that they made there.
func TestClassesOfThePublishedProviderMakeTheSameInstances(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.furnish()
		b.start()

		type machine struct {
			cpus, memory, disks, boot, nics int
			platform, policy                string
		}

		for id, c := range map[string]struct {
			text string
			want machine
		}{
			"first":  {"project: demo\nvcpus: 4\nmemory: 16\ndisk_size: 50\nvpc: default\nsubnet: s1\n", machine{4, 16, 1, 50, 1, "amd_milan", "best_effort"}},
			"sparse": {"project: demo\nvcpus: 2\n", machine{2, 8, 1, 10, 1, "amd_milan", "best_effort"}},
			"second": {
				"project: demo\ncpus: 16\nmemory: 64\nboot_disk_size: 200\ndisks: [{type: distributed, size: 100}, {type: local, size: 500}]\n" +
					"network_interfaces: [{ip_config: dual_stack, subnet_name: s1, vpc_name: default}, {ip_config: v6, subnet_name: s2, vpc_name: default}]\n" +
					"auto_restart_policy: never\ncpu_platform: amd_turinv2\nanti_affinity_groups: [g1]\nenable_jumbo_frames: true\n",
				machine{16, 64, 3, 200, 2, "amd_turin_v2", "never"},
			},
		} {
			i := b.provisioned(id, c.text)

			disks, err := b.rack.SeekInstanceDisks(t.Context(), i.Id, nil)
			b.ok(err)

			nics, err := b.sdk().InstanceNetworkInterfaceListAllPages(t.Context(), oxide.InstanceNetworkInterfaceListParams{Instance: oxide.NameOrId(i.Id)})
			b.ok(err)

			boot := disks[slices.IndexFunc(disks, func(d oxide.Disk) bool { return d.Id == i.BootDiskId })]
			got := machine{
				int(i.Ncpus), int(i.Memory / gib), len(disks), int(boot.Size / gib), len(nics), string(i.CpuPlatform), string(i.AutoRestartPolicy),
			}

			if got != c.want || i.Hostname != id {
				t.Errorf("%s: %+v, want %+v", id, got, c.want)
			}
		}
	}, bothVersions, func(s *setup) {
		s.rack.JumboFrames = true
		s.rack.Sleds = append(simrack.DefaultSleds(2), simrack.Sled{Name: "turin", CPUs: 128, Memory: 1 << 40, Platform: "amd_turin_v2"})
	})
}
