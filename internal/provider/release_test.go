package provider

import (
	"slices"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// What a request that is given up may leave has the addresses that were made for
// it, with an ID or without, and those of lists apart.
func TestWhatMayRemainHasTheAddresses(t *testing.T) {
	t.Parallel()

	var out Remains

	out.describe(&specs.InstanceSpec{
		Plan: &specs.Plan{ExternalIps: []*specs.ExternalIPPlan{
			{Type: "ephemeral", IpVersion: "v4"},
			{Type: "floating", Name: "ip1-x"},
			{Type: "floating", Name: "ip2-x"},
			{Type: "floating", Name: "gate", FloatingIpId: "gate-id"},
		}},
		FloatingIps: []*specs.FloatingIPRef{{Name: "ip1-x", Id: "id-1"}},
	})

	if want := []Named{{"id-1", "ip1-x"}, {"", "ip2-x"}}; !slices.Equal(out.Addresses, want) {
		t.Errorf("made: %v", out.Addresses)
	}

	if want := []Named{{"gate-id", "gate"}}; !slices.Equal(out.Listed, want) {
		t.Errorf("listed: %v", out.Listed)
	}
}
