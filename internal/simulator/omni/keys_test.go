package omni_test

import (
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/go-api-signature/pkg/pgp"
	"github.com/siderolabs/go-api-signature/pkg/serviceaccount"
	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/omni/resources/auth"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/system"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

// Requests without a known, valid key are Unauthenticated, unary and streams
// alike.
func TestRefusedKeys(t *testing.T) {
	server := newServer(t)

	revoked, err := server.MintProviderKey(t.Context(), "revoked", time.Hour)
	check(t, err)
	check(t, server.RevokeKeys(t.Context(), "infra-provider:revoked"))

	expired, err := server.MintProviderKey(t.Context(), "expired", time.Hour)
	check(t, err)
	expire(t, server, expired)

	foreign, err := pgp.GenerateKey("", "", "oxide@infra-provider.serviceaccount.omni.sidero.dev", time.Hour)
	check(t, err)
	unknown, err := serviceaccount.Encode("infra-provider:oxide", foreign)
	check(t, err)

	for name, key := range map[string]string{"unknown": unknown, "revoked": revoked, "expired": expired, "absent": ""} {
		t.Run(name, func(t *testing.T) {
			var options []client.Option
			if key != "" {
				options = append(options, client.WithServiceAccount(key))
			}

			c, err := client.New(server.Endpoint(), options...)
			check(t, err)

			defer c.Close()

			_, getErr := c.Omni().State().Get(t.Context(), system.NewSysVersion(system.SysVersionID).Metadata())
			_, listErr := c.Omni().State().List(t.Context(), infrares.NewMachineRequest("").Metadata())

			for _, err := range []error{getErr, listErr} {
				if status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != "invalid signature" {
					t.Errorf("got %v, want Unauthenticated, invalid signature", err)
				}
			}
		})
	}
}

// expire ends a key on the server. A key that expired by its own terms is not
// even sent: its owner can not sign with it.
func expire(t *testing.T, server *simulator.Server, key string) {
	t.Helper()

	account, err := serviceaccount.Decode(key)
	check(t, err)

	_, err = safe.StateUpdateWithConflicts(t.Context(), server.AdminState(), auth.NewPublicKey(account.Key.Fingerprint()).Metadata(),
		func(r *auth.PublicKey) error {
			r.TypedSpec().Value.Expiration = timestamppb.New(time.Now().Add(-time.Second))

			return nil
		})
	check(t, err)
}

// A key minted with a negative lifetime is expired by its own terms, as the
// daemon can tell at its start.
func TestExpiredKeyTellsItself(t *testing.T) {
	server := newServer(t)

	key, err := server.MintProviderKey(t.Context(), "oxide", -time.Hour)
	check(t, err)

	account, err := serviceaccount.Decode(key)
	check(t, err)

	if !account.Key.IsExpired(0) || server.KnowsKey(t.Context(), key) {
		t.Error("the key counts as valid")
	}
}

// A key is named after its provider, as the daemon checks at its start, and a
// second one leaves the first valid.
func TestProviderKeys(t *testing.T) {
	server := newServer(t)

	first, err := server.MintProviderKey(t.Context(), "oxide", time.Hour)
	check(t, err)

	account, err := serviceaccount.Decode(first)
	check(t, err)

	if account.Name != "infra-provider:oxide" {
		t.Errorf("the key's name is %q", account.Name)
	}

	_, err = server.MintProviderKey(t.Context(), "oxide", time.Hour)
	check(t, err)

	_, err = connect(t, server, first, "oxide").Omni().State().List(t.Context(), omni.NewMachine("").Metadata())
	check(t, err)
}

// A provider's key dies with it; a key without a provider is told so.
func TestKeyOfAnUnregisteredProvider(t *testing.T) {
	server := newServer(t)

	key, err := server.MintProviderKey(t.Context(), "oxide", time.Hour)
	check(t, err)

	st := connect(t, server, key, "oxide").Omni().State()
	admin := server.AdminState()

	check(t, admin.TeardownAndDestroy(t.Context(), infrares.NewProvider("oxide").Metadata()))

	if _, err := st.List(t.Context(), infrares.NewMachineRequest("").Metadata()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the key of a deleted provider: %v", err)
	}

	key, err = server.MintUserKey(t.Context(), "infra-provider:never", "InfraProvider", time.Hour)
	check(t, err)

	_, err = connect(t, server, key, "never").Omni().State().List(t.Context(), infrares.NewMachineRequest("").Metadata())
	if want := `infra provider with name "never" is not registered in the system`; status.Code(err) != codes.PermissionDenied ||
		status.Convert(err).Message() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
