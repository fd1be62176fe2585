package provider

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"google.golang.org/grpc/codes"

	simomni "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// All marks in the rack hang on the owner ID: however many processes start at
// once, with the rights of a provider, they agree on one and keep it.
func TestProcessesThatStartTogetherAgreeOnTheOwner(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.ok(b.admin.Destroy(t.Context(), metadata(ownerName, ownerID)))

		owners := make([]string, 8)

		var wg sync.WaitGroup
		for i := range owners {
			st := b.connect(b.key)

			wg.Go(func() {
				var err error
				if owners[i], err = EnsureOwner(t.Context(), st, ""); err != nil {
					t.Error(err)
				}
			})
		}

		wg.Wait()
		slices.Sort(owners)

		if all := slices.Compact(owners); len(all) != 1 || len(all[0]) != 26 {
			t.Errorf("the owners are %q", all)
		}

		again, err := EnsureOwner(t.Context(), b.st, "")
		b.ok(err)

		if again != owners[0] {
			t.Errorf("the owner was %s and is %s", owners[0], again)
		}
	})
}

// A create whose answer is lost is read back, not made again.
func TestALostAnswerDoesNotMakeASecondOwner(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.ok(b.admin.Destroy(t.Context(), metadata(ownerName, ownerID)))
		b.omni.Inject(simomni.Fault{Verb: "Create", Type: resourceType(ownerName), After: true, Code: codes.Unavailable})

		if owner, err := EnsureOwner(t.Context(), b.st, ""); err == nil {
			t.Errorf("the lost answer was taken for %q", owner)
		}

		stored, err := safe.StateGet[*Owner](t.Context(), b.admin, metadata(ownerName, ownerID))
		b.ok(err)

		owner, err := EnsureOwner(t.Context(), b.st, "")
		b.ok(err)

		if owner != stored.TypedSpec().Value.GetId() {
			t.Errorf("the owner is %s, stored is %s", owner, stored.TypedSpec().Value.GetId())
		}
	})
}

// A key without the right to write is a fault, not a lost race.
func TestADeniedOwnerIsAnError(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.ok(b.admin.Destroy(t.Context(), metadata(ownerName, ownerID)))

		key, err := b.omni.MintProviderKey(t.Context(), "another", time.Hour)
		b.ok(err)

		if owner, err := EnsureOwner(t.Context(), b.connect(key), ""); err == nil {
			t.Errorf("another provider's key gave the owner %q", owner)
		}
	})
}

// Importing processes see each other's runs, with the rights of a provider: how
// often each was renewed, and where it has scratch.
func TestRunsSeeEachOther(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		of := func(id string) *Runs { return &Runs{State: func() state.State { return b.st }, ID: id} }
		one, two := of("00000001"), of("00000002")
		ctx := t.Context()

		others := func(r *Runs) []image.RunInfo {
			t.Helper()

			all, err := r.Others(ctx)
			b.ok(err)

			return all
		}

		if got := others(one); len(got) != 0 {
			t.Errorf("others at first: %+v", got)
		}

		upload := image.JobInfo{
			Identity:  naming.ImageIdentity{Schematic: factorySchematic, Talos: "1.13.5", Arch: "amd64", SecureBoot: true, FactoryHost: "factory.lan:8443"},
			ProjectID: "p1", Phase: image.PhaseUploading, Done: 5, Total: 10, Rate: 2, Waits: "uploading",
		}

		b.ok(one.Renew(ctx, []string{"p2", "p1"}, []image.JobInfo{upload}))
		b.ok(two.Renew(ctx, nil, nil))

		got := others(two)
		if len(got) != 1 || len(got[0].Uploads) != 1 || got[0].Uploads[0] != upload || got[0].At.IsZero() {
			t.Errorf("the second sees the uploads %+v", got)
		}

		if len(got) != 1 || got[0].ID != one.ID || !slices.Equal(got[0].ProjectIDs, []string{"p1", "p2"}) {
			t.Fatalf("the second sees %+v", got)
		}

		before := got[0].Sequence

		b.ok(one.Renew(ctx, []string{"p1"}, nil))

		if got := others(two); len(got) != 1 || got[0].Sequence <= before || !slices.Equal(got[0].ProjectIDs, []string{"p1"}) {
			t.Errorf("after a renewal the second sees %+v", got)
		}

		b.ok(two.Forget(ctx, one.ID))
		b.ok(two.Forget(ctx, one.ID))

		if got := others(two); len(got) != 0 {
			t.Errorf("after it was forgotten the second sees %+v", got)
		}

		// A process that was taken for dead comes back.
		b.ok(one.Renew(ctx, []string{"p1"}, nil))

		if got := others(two); len(got) != 1 {
			t.Errorf("after it came back the second sees %+v", got)
		}
	})
}
