package omni_test

import (
	"net/url"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/google/uuid"
	"github.com/siderolabs/omni/client/pkg/jointoken"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	siderolinkconfig "github.com/siderolabs/omni/client/pkg/siderolink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

func tokenOf(t *testing.T, secret, version string, data map[string]string) string {
	t.Helper()

	token, err := jointoken.NewWithExtraData(secret, version, data)
	check(t, err)

	text, err := token.Encode()
	check(t, err)

	return text
}

func providerSecret(t *testing.T, server *simulator.Server, provider string) string {
	t.Helper()

	config, err := safe.StateGetByID[*siderolink.ProviderJoinConfig](t.Context(), server.AdminState(), provider)
	check(t, err)

	return config.TypedSpec().Value.GetJoinToken()
}

// joinConfigOf renders what the SDK renders for a request.
func joinConfigOf(t *testing.T, server *simulator.Server, provider, request string) string {
	t.Helper()

	options, err := siderolinkconfig.NewJoinOptions(
		siderolinkconfig.WithJoinToken(providerSecret(t, server, provider)),
		siderolinkconfig.WithMachineAPIURL(server.MachineAPIURL()),
		siderolinkconfig.WithEventSinkPort(8090),
		siderolinkconfig.WithLogServerPort(8092),
		siderolinkconfig.WithProvider(infrares.NewProvider(provider)),
		siderolinkconfig.WithMachineRequestID(request),
	)
	check(t, err)

	config, err := options.RenderJoinConfig()
	check(t, err)

	return string(config)
}

// Tokens: v2 by the provider's secret, v1 and plain by the account's.
func TestJoinTokens(t *testing.T) {
	server := newServer(t)

	_, err := server.MintProviderKey(t.Context(), "oxide", 1<<40)
	check(t, err)

	own := providerSecret(t, server, "oxide")

	params, err := safe.StateGetByID[*siderolink.ConnectionParams](t.Context(), server.AdminState(), siderolink.ConfigID) //nolint:staticcheck // older SDKs read it
	check(t, err)

	account := params.TypedSpec().Value.GetJoinToken()
	provider := map[string]string{omni.LabelInfraProviderID: "oxide", omni.LabelMachineRequest: "r"}

	for _, test := range []struct {
		name, token string
		code        codes.Code
	}{
		{"v2", tokenOf(t, own, jointoken.Version2, provider), codes.OK},
		{"v2 with the account's secret", tokenOf(t, account, jointoken.Version2, provider), codes.PermissionDenied},
		{"v2 of no provider", tokenOf(t, own, jointoken.Version2, map[string]string{omni.LabelInfraProviderID: "nobody"}), codes.PermissionDenied},
		{"v1", tokenOf(t, account, jointoken.Version1, provider), codes.OK},
		{"v1 with the provider's secret", tokenOf(t, own, jointoken.Version1, provider), codes.PermissionDenied},
		{"v1 of no provider", tokenOf(t, account, jointoken.Version1, map[string]string{omni.LabelInfraProviderID: "nobody"}), codes.NotFound},
		{"plain", account, codes.OK},
		{"wrong", "wrong", codes.PermissionDenied},
		{"none", "", codes.PermissionDenied},
		{"garbage", "v2:%%%", codes.PermissionDenied},
	} {
		api, err := url.Parse(server.MachineAPIURL())
		check(t, err)

		endpoint, _, err := admitWith(t.Context(), api.Host, test.token, uuid.NewString())
		if status.Code(err) != test.code {
			t.Errorf("%s: %v, want %s", test.name, err, test.code)
		}

		if test.code == codes.OK && endpoint != server.LinkEndpoint() {
			t.Errorf("%s: endpoint %q", test.name, endpoint)
		}
	}
}

// A guest that boots with the join config of a request that is gone becomes a
// link and a registration, and no machine.
func TestGuestOfADeletedRequest(t *testing.T) {
	server := newServer(t)
	st := server.AdminState()

	newToy(t).startWithNewKey(server)

	bootGuest(t, joinConfigOf(t, server, toyID, "long-gone"), "nocloud")

	registration := count[*infrares.MachineRegistration](t, st, 1)[0]
	if got, _ := registration.Metadata().Labels().Get(omni.LabelMachineRequest); got != "long-gone" {
		t.Errorf("the registration's request is %q", got)
	}

	eventually(t, "the guest is connected", func() (bool, string) {
		return list[*siderolink.Link](t, st)[0].TypedSpec().Value.GetConnected(), ""
	})

	count[*omni.Machine](t, st, 0)
}

// A request that never joined is released at once.
func TestNeverJoinedRequestGoesAtOnce(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.boots = false
	provider.startWithNewKey(server)

	admin := adminState(t, server)
	check(t, admin.Create(t.Context(), newRequest("direct", toyID)))

	eventually(t, "the request is provisioned", func() (bool, string) {
		all := list[*infrares.MachineRequestStatus](t, admin)

		return len(all) == 1 && all[0].TypedSpec().Value.GetStatus() == "Provision Complete", ""
	})

	check(t, admin.TeardownAndDestroy(t.Context(), infrares.NewMachineRequest("direct").Metadata()))

	if provider.deprovisioned() != 1 {
		t.Errorf("deprovisioned %d", provider.deprovisioned())
	}
}

// Deleting a machine's link tears its request down, and the set makes another.
func TestDeletedLinkReplacesTheRequest(t *testing.T) {
	server := newServer(t)
	provider := newToy(t)
	provider.startWithNewKey(server)

	st := server.AdminState()

	applySet(t, server, "1")

	machine := count[*omni.Machine](t, st, 1)[0]

	check(t, adminState(t, server).TeardownAndDestroy(t.Context(), siderolink.NewLink(machine.Metadata().ID(), nil).Metadata()))

	eventually(t, "another machine has joined", func() (bool, string) {
		machines, requests := list[*omni.Machine](t, st), list[*infrares.MachineRequest](t, st)

		return len(machines) == 1 && len(requests) == 1 && machines[0].Metadata().ID() != machine.Metadata().ID(), ""
	})
}

// The schematic call takes raw YAML from providers and refuses unknown fields;
// the calls for users are refused to them.
func TestSchematics(t *testing.T) {
	server := newServer(t)

	key, err := server.MintProviderKey(t.Context(), "oxide", 1<<40)
	check(t, err)

	management := connect(t, server, key, "oxide").Management()

	made, err := management.CreateSchematicFromRaw(t.Context(), []byte("customization:\n  extraKernelArgs: [a=b]\n"))
	check(t, err)

	if made.GetSchematicId() == "" {
		t.Error("no ID")
	}

	if _, err := management.CreateSchematicFromRaw(t.Context(), []byte("customization:\n  unknownField: 1\n")); err == nil {
		t.Error("an unknown field was accepted")
	}

	if _, err := management.ListServiceAccounts(t.Context()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("listing service accounts: %v", err)
	}

	if _, err := management.CreateJoinToken(t.Context(), "x", 0); status.Code(err) != codes.Unimplemented {
		t.Errorf("a call that is not simulated: %v", err)
	}
}
