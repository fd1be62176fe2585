package omni_test

import (
	"slices"
	"testing"
	"time"

	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

// A6: with an administrator's key Run stays up and does harm: it puts its
// finalizer on requests and can write nothing else.
func TestAdminKeyMakesRunUseless(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	admin := server.AdminState()

	// The provider ran before, with its own key.
	first := provider.startWithNewKey(server)
	first.cancel()
	_ = first.wait(t)

	key, err := server.MintAdminKey(t.Context(), time.Hour)
	check(t, err)
	check(t, admin.Create(t.Context(), newRequest("stuck", toyID)))

	r := provider.start(server, key)

	eventually(t, "Run put its finalizer on the request", func() (bool, string) {
		request := list[*infrares.MachineRequest](t, admin)[0]

		return request.Metadata().Finalizers().Has(toyID + ".ProvisionController"), ""
	})

	eventually(t, "Run's own writes are refused", func() (bool, string) {
		return refused(server, "Create", infrares.MachineRequestStatusType), ""
	})

	select {
	case err := <-r.result:
		r.result <- err
		t.Errorf("Run ended: %v", err)
	default:
	}

	if got := list[*infrares.MachineRequestStatus](t, admin); len(got) != 0 {
		t.Errorf("an administrator's key wrote %d statuses", len(got))
	}
}

// The key of another provider ends Run at once.
func TestKeyOfAnotherProviderEndsRun(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)

	key, err := server.MintProviderKey(t.Context(), "gone", time.Hour)
	check(t, err)

	err = provider.start(server, key).wait(t)
	if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != `resource ID must match the infra provider ID "gone"` {
		t.Errorf("Run ended with %v", err)
	}
}

// A7: a provider that is deleted under a running process keeps running; its
// calls are Unauthenticated, and its requests keep its finalizers.
func TestDeletedProviderKeepsRunning(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.boots = false
	r := provider.startWithNewKey(server)
	admin := server.AdminState()

	check(t, admin.Create(t.Context(), newRequest("direct", toyID)))

	eventually(t, "the request has its finalizer", func() (bool, string) {
		request := list[*infrares.MachineRequest](t, admin)[0]

		return request.Metadata().Finalizers().Has(toyID + ".ProvisionController"), ""
	})

	check(t, admin.TeardownAndDestroy(t.Context(), infrares.NewProvider(toyID).Metadata()))

	eventually(t, "calls are refused", func() (bool, string) {
		calls := server.Calls()

		return calls[len(calls)-1].Code == codes.Unauthenticated.String(), calls[len(calls)-1].Code
	})

	select {
	case err := <-r.result:
		r.result <- err
		t.Errorf("Run ended: %v", err)
	default:
	}

	if request := list[*infrares.MachineRequest](t, admin)[0]; !request.Metadata().Finalizers().Has(toyID + ".ProvisionController") {
		t.Error("a request made by hand lost its finalizer")
	}

	count[*infrares.ProviderStatus](t, admin, 0)
	count[*infrares.MachineRequestStatus](t, admin, 0)
}

// refused says whether a call was answered PermissionDenied.
func refused(server *simulator.Server, verb, typ string) bool {
	return slices.ContainsFunc(server.Calls(), func(c simulator.Call) bool {
		return c.Verb == verb && c.Type == typ && c.Code == codes.PermissionDenied.String()
	})
}
