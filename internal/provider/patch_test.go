package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

const anInstance = "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11"

func mustPatches(t *testing.T, plan *specs.Plan) []patch {
	t.Helper()

	all, err := patches(plan, anInstance)
	if err != nil {
		t.Fatal(err)
	}

	return all
}

// Invariant: a class that asks for nothing gets the patch of the provider ID
// alone, as all of them are final for users of templates; no two requests share a
// patch.
func TestEveryRequestHasPatchesOfItsOwnName(t *testing.T) {
	t.Parallel()

	var names []string

	for _, id := range []string{"talos-workers-a", "talos-workers-b"} {
		plain := mustPatches(t, &specs.Plan{RequestId: id, InstanceName: id})
		if len(plain) != 1 || plain[0].name != "000-oxide-test."+id+"-provider-id" {
			t.Errorf("patches %v", plain)
		}

		for _, p := range mustPatches(t, &specs.Plan{RequestId: id, InstanceName: id, PinHostname: true, NodeLabels: []string{"a=b"}}) {
			names = append(names, p.name)
		}
	}

	slices.Sort(names)

	if len(slices.Compact(names)) != 6 {
		t.Errorf("names %q", names)
	}
}

// Invariant: the config of a node takes the patches in each minor version of
// Talos that is accepted, and is valid with them.
func TestPatchesAreValidInEachTalosVersion(t *testing.T) {
	t.Parallel()

	longest := "a" + strings.Repeat("-x", 31)

	for _, version := range []string{"v1.12", "v1.13", "v1.14"} {
		contract, err := config.ParseContractFromVersion(version)
		if err != nil {
			t.Fatal(err)
		}

		input, err := generate.NewInput("test", "https://192.0.2.1:6443", "1.34.0", generate.WithVersionContract(contract))
		if err != nil {
			t.Fatal(err)
		}

		node, err := input.Config(machine.TypeWorker)
		if err != nil {
			t.Fatal(err)
		}

		var wanted []configpatcher.Patch

		for _, p := range mustPatches(t, &specs.Plan{
			RequestId: "r", InstanceName: longest, PinHostname: true,
			NodeLabels: []string{"empty=", "example.org/a=yes", "number=1", "topology.kubernetes.io/zone=rack-1"},
		}) {
			read, err := configpatcher.LoadPatch(p.data)
			if err != nil {
				t.Fatalf("%s %s: %v\n%s", version, p.name, err, p.data)
			}

			wanted = append(wanted, read)
		}

		out, err := configpatcher.Apply(configpatcher.WithConfig(node), wanted)
		if err != nil {
			t.Fatal(err)
		}

		patched, err := out.Config()
		if err != nil {
			t.Fatal(err)
		}

		if _, err := patched.Validate(cloud{}); err != nil { //nolint:staticcheck // what a node does, not what a client may know
			t.Errorf("%s: %v", version, err)
		}

		if got := patched.Machine().Kubelet().ExtraConfig()["providerID"]; got != "oxide://"+anInstance {
			t.Errorf("%s: kubelet gets provider ID %v", version, got)
		}

		if got := patched.Machine().NodeLabels(); len(got) != 4 || got["topology.kubernetes.io/zone"] != "rack-1" || got["number"] != "1" {
			t.Errorf("%s: node labels %v", version, got)
		}

		if got := patched.NetworkHostnameConfig(); got == nil || got.Hostname() != longest {
			t.Errorf("%s: hostname %v", version, got)
		}
	}
}

// cloud is a machine that Talos runs on in a cloud.
type cloud struct{}

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }
