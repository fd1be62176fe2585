package machineclass_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// parsed is a class that both the schema and the daemon take.
func parsed(t *testing.T, text string) machineclass.Class {
	t.Helper()

	class, err := machineclass.Parse("project: talos\n" + text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}

	if err = validate(compiled(t), "project: talos\n"+text); err != nil {
		t.Errorf("%q: the schema says: %v", text, err)
	}

	return class
}

// Invariant: without a word in the class a node gets no label and no host name
// by a patch, because a provider's patch is final.
func TestNodesAreLeftAloneByDefault(t *testing.T) {
	t.Parallel()

	class := parsed(t, "")
	if labels := class.Labels(); len(labels) != 0 || class.HostnamePinned() {
		t.Errorf("labels %v, pinned %t", labels, class.HostnamePinned())
	}

	class = parsed(t, "hostname: pinned\ntopology: {region: west, zone: \"\", instance_type: big}\nnode_labels: [example.com/tier=gold, worker=]")

	if want := map[string]string{
		"topology.kubernetes.io/region": "west", "node.kubernetes.io/instance-type": "big", "example.com/tier": "gold", "worker": "",
	}; !maps.Equal(class.Labels(), want) || !class.HostnamePinned() {
		t.Errorf("labels %v, pinned %t", class.Labels(), class.HostnamePinned())
	}
}

// Labels that a kubelet may give its own node are taken, those of Kubernetes'
// own namespaces included.
func TestLabelsThatKubeletTakes(t *testing.T) {
	t.Parallel()

	for _, label := range []string{
		"a=b", "A_b.c-d=X", "example.com/a=", "node.kubernetes.io/x=y", "x.node.kubernetes.io/y=z", "kubelet.kubernetes.io/x=y",
		"failure-domain.beta.kubernetes.io/zone=z", "notkubernetes.io/x=y",
	} {
		parsed(t, "node_labels: ["+label+"]")
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()

	class := parsed(t, `network_interfaces: [{ip_config: dual_stack, addresses: [172.30.0.9, "fd00::9", 172.30.0.10], transit_ips: ["fd01::/16", 10.0.0.0/8]}]`)
	nic := class.NICs[0]

	if v4 := nic.AddressesOf("v4"); !slices.Equal(v4, []netip.Addr{netip.MustParseAddr("172.30.0.9"), netip.MustParseAddr("172.30.0.10")}) {
		t.Errorf("v4: %v", v4)
	}

	if v6 := nic.AddressesOf("v6"); !slices.Equal(v6, []netip.Addr{netip.MustParseAddr("fd00::9")}) {
		t.Errorf("v6: %v", v6)
	}

	if want := []netip.Prefix{netip.MustParsePrefix("fd01::/16"), netip.MustParsePrefix("10.0.0.0/8")}; !slices.Equal(nic.TransitIPs, want) {
		t.Errorf("transit: %v", nic.TransitIPs)
	}
}

// An address without pool and version is of IPv4; with a pool it has the pool's.
func TestExternalAddresses(t *testing.T) {
	t.Parallel()

	class := parsed(t, "network_interfaces: [{ip_config: dual_stack}]\n"+
		"external_ips: [{}, {ip_version: v6, pool: public}, {type: floating, pool: public}, {type: floating, floating_ips: [a, b]}, {type: floating}]")

	for i, want := range []machineclass.ExternalIP{
		{Type: "ephemeral", IPVersion: "v4"},
		{Type: "ephemeral", IPVersion: "v6", Pool: "public"},
		{Type: "floating", Pool: "public"},
		{Type: "floating", FloatingIPs: []string{"a", "b"}},
		{Type: "floating", IPVersion: "v4"},
	} {
		got := class.ExternalIPs[i]
		if got.Type != want.Type || got.IPVersion != want.IPVersion || got.Pool != want.Pool || !slices.Equal(got.FloatingIPs, want.FloatingIPs) {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}

		if got.Listed() != (i == 3) {
			t.Errorf("%d: listed %t", i, got.Listed())
		}
	}
}

// Invariant: the policy that must keep all machines apart is refused for more of
// them than one group of the rack has.
func TestSetsThatOneGroupCanNotHold(t *testing.T) {
	t.Parallel()

	for policy, most := range map[string]int{"none": 1000, "allow": 1000, "fail": 32} {
		class := parsed(t, "machine_set_group: "+policy)
		if err := class.CheckSetSize(most); err != nil {
			t.Errorf("%s, %d: %v", policy, most, err)
		}
	}

	class := parsed(t, "machine_set_group: fail")

	const want = "machine_set_group: 33 machines are over the limit of 32 that one anti-affinity group keeps apart, which fail needs"
	if err := class.CheckSetSize(33); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// What only just fits the rack's limits is taken.
func TestClassesAtTheLimits(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"cpus: 254\nmemory: 1536\nboot_disk_size: 1023",
		"anti_affinity_groups: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o]\nmachine_set_group: fail",
		"network_interfaces: [{ip_config: dual_stack}]\nexternal_ips: [{}, {ip_version: v6}]",
		"external_ips: [{}, {pool: a}]", // of which version only the rack knows
		"disks: [{size: 1, name: data1}, {size: 1, name: data0}]",
		"disks: [{size: 1, name: abcdefghi}]",
		"kernel_args: [-console, console=ttyS1, console=ttyS2]",
		"extensions: [siderolabs/nvidia-container-toolkit-lts, me/x_1.2]",
		"description: ''\ntrusted_cas: ''\ntopology: {}\nexternal_ips: []\nnode_labels: []",
	} {
		parsed(t, text)
	}
}
