package machineclass

import (
	"net/netip"
	"slices"
	"testing"
)

// uses has a user of each field that some version did not carry out.
var uses = map[string]func(*Class){
	"description":                      func(c *Class) { c.Description = "a" },
	"disks[].name":                     func(c *Class) { c.Disks = []Disk{{Type: DiskLocal, Size: 1, Name: "a"}} },
	"network_interfaces[].addresses":   func(c *Class) { c.NICs[0].Addresses = make([]netip.Addr, 1) },
	"network_interfaces[].transit_ips": func(c *Class) { c.NICs[0].TransitIPs = make([]netip.Prefix, 1) },
	"external_ips":                     func(c *Class) { c.ExternalIPs = make([]ExternalIP, 1) },
	"machine_set_group":                func(c *Class) { c.SetGroup = GroupAllow },
	"on_stopped":                       func(c *Class) { c.OnStopped = StoppedStart },
	"hostname":                         func(c *Class) { c.Hostname = HostnamePinned },
	"topology":                         func(c *Class) { c.Topology.Zone = "a" },
	"node_labels":                      func(c *Class) { c.NodeLabels = []string{"a=b"} },
	"extensions":                       func(c *Class) { c.Extensions = []string{"a/b"} },
	"kernel_args":                      func(c *Class) { c.KernelArgs = []string{"a"} },
	"image_scope":                      func(c *Class) { c.ImageScope = ScopeProject },
	"trusted_cas":                      func(c *Class) { c.TrustedCAs = "a" },
}

// Invariant: a field that is not carried out is refused wherever it is used, by
// its name, and nothing else is.
func TestWhatIsNotCarriedOutIsRefused(t *testing.T) {
	t.Parallel()

	for path, use := range uses {
		class, err := Parse("project: a")
		if err != nil {
			t.Fatal(err)
		}

		use(&class)

		switch err = class.NotYet(); {
		case !pendingPath(path) && err != nil:
			t.Errorf("%s: %v", path, err)
		case pendingPath(path) && (err == nil || err.Error() != path+": is not supported by this version yet"):
			t.Errorf("%s: %v", path, err)
		}
	}

	for _, f := range notYet {
		if uses[f.path] == nil {
			t.Errorf("nothing here uses %s", f.path)
		}
	}
}

func pendingPath(path string) bool {
	return slices.ContainsFunc(notYet, func(f pendingField) bool { return f.path == path })
}

// Invariant: a class that says what is the case anyway is not refused, nor is
// any of the published provider.
func TestDefaultsAndPublishedFieldsAreCarriedOut(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"",
		"machine_set_group: none\non_stopped: leave\nhostname: platform\nimage_scope: auto\ndescription: ''\ntopology: {}\nnode_labels: []\n" +
			"external_ips: []\nextensions: []\nkernel_args: []\ntrusted_cas: ''\ndisks: [{size: 1, name: data0}]\nnetwork_interfaces: [{addresses: []}]",
		"cpus: 2\nmemory: 8\nboot_disk_size: 20\ndisks: [{size: 10}]\nnetwork_interfaces: [{ip_config: dual_stack}]\nauto_restart_policy: never\n" +
			"cpu_platform: amd_turin\nanti_affinity_groups: [a]\nenable_jumbo_frames: true",
		"vcpus: 2\nsubnet: a",
	} {
		class, err := Parse("project: a\n" + text)
		if err == nil {
			err = class.NotYet()
		}

		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Users read of a field that it is not there yet wherever they read of it.
func TestWhatIsNotCarriedOutIsSaid(t *testing.T) {
	t.Parallel()

	marked := 0

	var count func(prefix string, known []field)

	count = func(prefix string, known []field) {
		for _, f := range known {
			if f.pending != pendingPath(prefix+f.key) {
				t.Errorf("%s%s: pending %t", prefix, f.key, f.pending)
			}

			if f.pending {
				marked++
			}

			count(prefix+f.key+".", f.fields)

			if f.entry != nil {
				count(prefix+f.key+"[].", f.entry.fields)
			}
		}
	}

	count("", fields())

	if marked != len(notYet) {
		t.Errorf("%d fields are marked of %d: a path that is no field's", marked, len(notYet))
	}
}
