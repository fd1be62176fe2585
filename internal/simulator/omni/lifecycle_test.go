package omni_test

import (
	"testing"

	"github.com/siderolabs/omni/client/api/omni/specs"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

const setYAML = `
metadata: {namespace: default, type: MachineRequestSets.omni.sidero.dev, id: set}
spec:
  providerid: toy
  machinecount: %COUNT%
  talosversion: 1.13.5
  providerdata: |
    cores: 2
`

func applySet(t *testing.T, server *simulator.Server, count string) {
	t.Helper()

	check(t, server.ApplyYAML(t.Context(), []byte(replace(setYAML, "%COUNT%", count))))
}

// A request of a set is provisioned by the real SDK, its guest joins, and all
// of it is gone when the set asks for none.
func TestRequestIsProvisionedJoinedAndGone(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.startWithNewKey(server)

	st := server.AdminState()

	applySet(t, server, "1")

	machine := count[*omni.Machine](t, st, 1)[0]
	request := count[*infrares.MachineRequest](t, st, 1)[0]

	eventually(t, "the request is provisioned", func() (bool, string) {
		status := list[*infrares.MachineRequestStatus](t, st)[0].TypedSpec().Value

		return status.GetStage() == specs.MachineRequestStatusSpec_PROVISIONED && status.GetId() == machine.Metadata().ID(), status.String()
	})

	for _, label := range []string{omni.LabelMachineRequest, omni.LabelInfraProviderID, omni.LabelMachineRequestSet} {
		if _, ok := machine.Metadata().Labels().Get(label); !ok {
			t.Errorf("the machine lacks label %s", label)
		}
	}

	if got := request.TypedSpec().Value.GetTalosVersion(); got != "1.13.5" {
		t.Errorf("the request's Talos version is %q", got)
	}

	if provider.schematics[0] == "" {
		t.Error("no schematic ID")
	}

	applySet(t, server, "0")

	count[*infrares.MachineRequest](t, st, 0)
	count[*infrares.MachineRequestStatus](t, st, 0)
	count[*infrares.ConfigPatchRequest](t, st, 0)
	count[*omni.ConfigPatch](t, st, 0)
	count[*omni.Machine](t, st, 0)
	count[*infrares.MachineRegistration](t, st, 0)
	count[*siderolink.Link](t, st, 0)

	if provider.deprovisioned() != 1 {
		t.Errorf("deprovisioned %d times", provider.deprovisioned())
	}
}
