package omni_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/api/omni/specs"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

const clusterYAML = `
metadata: {namespace: default, type: MachineClasses.omni.sidero.dev, id: small}
spec:
  autoprovision: {providerid: toy, providerdata: "cores: 2"}
---
metadata: {namespace: default, type: Clusters.omni.sidero.dev, id: c}
spec: {talosversion: 1.13.5, kubernetesversion: 1.34.2}
---
metadata:
  namespace: default
  type: MachineSets.omni.sidero.dev
  id: c-workers
  labels: {omni.sidero.dev/cluster: c, omni.sidero.dev/role-worker: ""}
spec:
  machineallocation: {name: small, machinecount: %COUNT%}
`

func applyCluster(t *testing.T, server *simulator.Server, machines int) {
	t.Helper()

	check(t, server.ApplyYAML(t.Context(), []byte(replace(clusterYAML, "%COUNT%", strconv.Itoa(machines)))))
}

func readyMembers(t *testing.T, server *simulator.Server, want int) {
	t.Helper()

	eventually(t, strconv.Itoa(want)+" members are ready", func() (bool, string) {
		ready, last := 0, ""

		for _, member := range list[*omni.ClusterMachineStatus](t, server.AdminState()) {
			last += member.TypedSpec().Value.String() + "\n"

			if member.TypedSpec().Value.GetReady() && member.TypedSpec().Value.GetStage() == specs.ClusterMachineStatusSpec_RUNNING {
				ready++
			}
		}

		return ready == want && len(list[*omni.ClusterMachine](t, server.AdminState())) == want, last
	})
}

// A cluster of a class gets its machines, configured with the provider's
// patches, grows, shrinks through a reset, and goes without a trace.
func TestClusterFromAClass(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.startWithNewKey(server)

	st := server.AdminState()

	applyCluster(t, server, 2)
	readyMembers(t, server, 2)

	for _, request := range list[*infrares.MachineRequest](t, st) {
		if !strings.HasPrefix(request.Metadata().ID(), "c-workers-") || len(request.Metadata().ID()) != len("c-workers-")+6 {
			t.Errorf("a request's ID is %q", request.Metadata().ID())
		}

		if !request.Metadata().Finalizers().Has("ClusterMachineRequestStatusController") || !request.Metadata().Finalizers().Has("toy.ProvisionController") {
			t.Errorf("finalizers %v", request.Metadata().Finalizers())
		}

		config, err := configloader.NewFromBytes([]byte(provider.guest(request.Metadata().ID()).lastConfig()))
		check(t, err)

		if config.Machine().NodeLabels()["zone"] != "rack-1" {
			t.Error("the provider's patch is not in the machine's config")
		}

		if config.SideroLink() == nil || config.SideroLink().APIUrl().Query().Get("jointoken") == "" {
			t.Error("the machine's config does not keep it in Omni")
		}
	}

	for _, shown := range count[*omni.ClusterMachineRequestStatus](t, st, 2) {
		eventually(t, "the page says that the machine is awaited", func() (bool, string) {
			current, err := safe.StateGetByID[*omni.ClusterMachineRequestStatus](t.Context(), st, shown.Metadata().ID())
			check(t, err)

			value := current.TypedSpec().Value

			return value.GetStage() == specs.ClusterMachineRequestStatusSpec_PROVISIONED &&
				value.GetStatus() == "Waiting for the machine to join Omni", value.String()
		})
	}

	applyCluster(t, server, 3)
	readyMembers(t, server, 3)

	applyCluster(t, server, 1)
	readyMembers(t, server, 1)
	count[*infrares.MachineRequest](t, st, 1)

	if got := provider.deprovisioned(); got != 2 {
		t.Errorf("deprovisioned %d, want 2", got)
	}

	admin := adminState(t, server)
	check(t, admin.TeardownAndDestroy(t.Context(), omni.NewCluster("c").Metadata()))

	count[*infrares.MachineRequest](t, st, 0)
	count[*omni.MachineRequestSet](t, st, 0)
	count[*omni.MachineSetNode](t, st, 0)
	count[*omni.ClusterMachine](t, st, 0)
	count[*omni.ClusterMachineRequestStatus](t, st, 0)
	count[*omni.ConfigPatch](t, st, 0)
	count[*siderolink.Link](t, st, 0)
}

// A machine that published no platform gets no config, and the reason stands
// where a user finds it.
func TestNoPlatformNoConfig(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.platform = ""
	provider.startWithNewKey(server)

	st := server.AdminState()

	applyCluster(t, server, 1)

	machine := count[*omni.Machine](t, st, 1)[0]
	want := `machine "` + machine.Metadata().ID() + `" has no platform set`

	eventually(t, "the refusal is recorded", func() (bool, string) {
		statuses := list[*omni.ClusterMachineStatus](t, st)
		if len(statuses) != 1 {
			return false, ""
		}

		return statuses[0].TypedSpec().Value.GetLastConfigError() == want, statuses[0].TypedSpec().Value.String()
	})

	record := list[*omni.ClusterMachineConfigStatus](t, st)[0].TypedSpec().Value
	if record.GetLastConfigError() != want || record.GetClusterMachineConfigSha256() != "" {
		t.Errorf("recorded: %v", record)
	}

	for _, request := range list[*infrares.MachineRequest](t, st) {
		if provider.guest(request.Metadata().ID()).lastConfig() != "" {
			t.Error("the guest got a config")
		}
	}
}

// A1: patches of the machine level, which the provider's are, come last; only a
// user's patch of that level beats them.
func TestPatchOrder(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.startWithNewKey(server)

	st := server.AdminState()

	user := func(id, zone string, labels map[string]string) {
		patch := omni.NewConfigPatch(id)
		check(t, patch.TypedSpec().Value.SetUncompressedData([]byte("machine:\n  nodeLabels:\n    zone: "+zone+"\n")))

		for key, value := range labels {
			patch.Metadata().Labels().Set(key, value)
		}

		check(t, st.Create(t.Context(), patch))
	}

	user("900-cluster", "user-cluster", map[string]string{omni.LabelCluster: "c"})
	user("900-set", "user-set", map[string]string{omni.LabelCluster: "c", omni.LabelMachineSet: "c-workers"})

	applyCluster(t, server, 1)
	readyMembers(t, server, 1)

	g := provider.guest(list[*infrares.MachineRequest](t, st)[0].Metadata().ID())
	zone := func() string {
		config, err := configloader.NewFromBytes([]byte(g.lastConfig()))
		check(t, err)

		return config.Machine().NodeLabels()["zone"]
	}

	if got := zone(); got != "rack-1" {
		t.Errorf("zone %q, want the provider's", got)
	}

	user("500-machine", "user-machine", map[string]string{omni.LabelMachine: g.uuid})

	eventually(t, "the user's machine patch wins", func() (bool, string) { return zone() == "user-machine", zone() })
}

// A node that does not answer holds its teardown until its link is deleted.
func TestUnreachableNodeWaitsForItsLink(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.startWithNewKey(server)

	st := server.AdminState()

	applyCluster(t, server, 1)
	readyMembers(t, server, 1)

	request := list[*infrares.MachineRequest](t, st)[0].Metadata().ID()
	g := provider.guest(request)
	g.powerOff()

	applyCluster(t, server, 0)

	eventually(t, "the cluster machine is being torn down", func() (bool, string) {
		machines := list[*omni.ClusterMachine](t, st)

		return len(machines) == 1 && machines[0].Metadata().Phase() == resource.PhaseTearingDown, ""
	})

	eventually(t, "the machine is seen to be away", func() (bool, string) {
		return !list[*omni.Machine](t, st)[0].TypedSpec().Value.GetConnected(), "connected"
	})

	if provider.deprovisioned() != 0 || len(list[*infrares.MachineRequest](t, st)) != 1 {
		t.Fatal("the request did not wait")
	}

	admin := adminState(t, server)
	check(t, admin.TeardownAndDestroy(t.Context(), siderolink.NewLink(g.uuid, nil).Metadata()))

	count[*infrares.MachineRequest](t, st, 0)

	if provider.deprovisioned() != 1 {
		t.Errorf("deprovisioned %d", provider.deprovisioned())
	}
}
