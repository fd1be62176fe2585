package omni_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/omni/client/api/omni/specs"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
)

func requestIDs(requests []*infrares.MachineRequest) []string {
	slices.SortFunc(requests, func(a, b *infrares.MachineRequest) int { return a.Metadata().Created().Compare(b.Metadata().Created()) })

	ids := make([]string, 0, len(requests))
	for _, request := range requests {
		ids = append(ids, request.Metadata().ID())
	}

	return ids
}

// Machines that are in no cluster are given back oldest first, and requests
// that are going are not counted.
func TestScaleDownTakesTheOldest(t *testing.T) {
	server := newServer(t)
	newToy(t).startWithNewKey(server)

	st := server.AdminState()

	applySet(t, server, "2")
	count[*omni.Machine](t, st, 2)
	applySet(t, server, "4")
	count[*omni.Machine](t, st, 4)

	before := requestIDs(list[*infrares.MachineRequest](t, st))

	applySet(t, server, "1")

	after := requestIDs(count[*infrares.MachineRequest](t, st, 1))
	if after[0] != before[3] {
		t.Errorf("of %v stayed %v, want the youngest", before, after)
	}
}

// Many requests at once are all served, and leave nothing.
func TestTwentyMachines(t *testing.T) {
	server := newServer(t)
	newToy(t).startWithNewKey(server)

	st := server.AdminState()

	applySet(t, server, "20")
	count[*omni.Machine](t, st, 20)
	applySet(t, server, "0")
	count[*infrares.MachineRequest](t, st, 0)
	count[*omni.Machine](t, st, 0)
	count[*infrares.ConfigPatchRequest](t, st, 0)
}

// The page shows why a provider failed, and what it is at until then.
func TestFailureIsShown(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.broken = errors.New("there is no such project: fix the class")
	provider.startWithNewKey(server)

	st := server.AdminState()

	applyCluster(t, server, 1)

	eventually(t, "the page shows the failure", func() (bool, string) {
		shown := list[*omni.ClusterMachineRequestStatus](t, st)
		if len(shown) != 1 {
			return false, ""
		}

		value := shown[0].TypedSpec().Value

		return value.GetStage() == specs.ClusterMachineRequestStatusSpec_FAILED &&
			strings.HasPrefix(value.GetStatus(), "Provision Failed: there is no such project: fix the class"), value.String()
	})
}

// A provider that goes takes the sets made by hand with it: its finalizers are
// stripped, nobody deprovisions, and its own records stay.
func TestDeletedProviderStripsItsRequests(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.boots = false
	provider.startWithNewKey(server)

	st, admin := server.AdminState(), adminState(t, server)

	applySet(t, server, "2")

	eventually(t, "both requests are provisioned", func() (bool, string) {
		summary, err := server.Summary(t.Context())
		check(t, err)

		return summary.Requests["PROVISIONED"] == 2, ""
	})

	check(t, admin.TeardownAndDestroy(t.Context(), infrares.NewProvider(toyID).Metadata()))

	count[*infrares.MachineRequest](t, st, 0)
	count[*omni.MachineRequestSet](t, st, 0)
	count[*toyMachine](t, st, 2)

	if provider.deprovisioned() != 0 {
		t.Errorf("deprovisioned %d", provider.deprovisioned())
	}
}

// A provider with running machines can not be deleted.
func TestProviderInUse(t *testing.T) {
	server := newServer(t)
	newToy(t).startWithNewKey(server)

	applySet(t, server, "1")
	count[*omni.Machine](t, server.AdminState(), 1)

	_, err := adminState(t, server).Teardown(t.Context(), infrares.NewProvider(toyID).Metadata())
	if err == nil || !strings.Contains(err.Error(), "as there are 1 running machines managed by it") {
		t.Errorf("deleting a provider in use: %v", err)
	}
}
