package provider

import (
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

func TestTheProviderIDPatchIsAMachineConfigOfItsOwnName(t *testing.T) {
	t.Parallel()

	nameA, data := providerIDPatch("talos-workers-a", "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11")
	nameB, _ := providerIDPatch("talos-workers-b", "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11")

	if nameA == nameB || nameA != "000-oxide-test.talos-workers-a-provider-id" {
		t.Errorf("names %q and %q", nameA, nameB)
	}

	cfg, err := configloader.NewFromBytes(data, configloader.WithAllowPatchDelete())
	if err != nil {
		t.Fatal(err)
	}

	if got := cfg.Machine().Kubelet().ExtraConfig()["providerID"]; got != "oxide://4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11" {
		t.Errorf("kubelet gets provider ID %v", got)
	}
}
