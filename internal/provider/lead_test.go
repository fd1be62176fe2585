package provider

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
)

// leased has a daemon work under a lease.
func leased(o *Options) {
	o.Host = "host-a"
	o.Lease = &lease.Times{Duration: lease.DefaultDuration, Renew: lease.DefaultRenew, Stop: lease.DefaultStop}
}

// held has somebody else hold the lease until the function it returns is called.
func (b *bench) held() (release func()) {
	b.t.Helper()

	var times Options

	leased(&times)

	k := lease.New(lease.Config{
		Store: b.admin, Type: resourceType(leaseName), Namespace: namespace(), Host: "host-z", Times: *times.Lease,
		Unused:  func(context.Context) (bool, error) { return true, nil },
		Told:    func(lease.Role, error) {},
		Mend:    func(error) bool { return false },
		Deposed: func() {},
		Log:     zap.NewNop(),
	})

	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)

	go func() {
		done <- k.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()

			return nil
		})
	}()

	b.until("somebody else to hold the lease", func() bool { return k.Check() == nil })

	return func() {
		cancel()
		b.ok(<-done)
	}
}

// A standby is ready, as it could take over, and writes nothing at all to Omni:
// it does not even introduce the provider, and its health is the holder's to tell.
func TestAStandbyIsReadyAndWritesNothing(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		release := b.held()
		before := len(b.omni.Calls())
		d := b.serve(leased)
		b.untilReady(d)
		b.ask(theRequest)
		b.pass(time.Hour)

		looks := 0

		for _, c := range b.omni.Calls()[before:] {
			if !strings.Contains(c.Identity, "@infra-provider.") {
				continue
			}

			if c.Verb != "Get" {
				t.Fatalf("the standby made the call %+v", c)
			}

			looks++
		}

		if looks < 3000 || looks > 4000 {
			t.Errorf("the standby looked %d times in an hour, at one a second", looks)
		}

		if _, err := b.admin.Get(t.Context(), infra.NewProviderStatus(testID).Metadata()); !state.IsNotFoundError(err) {
			t.Errorf("the provider was introduced: %v", err)
		}

		if !d.board.Ready() || d.keeper.Role().Holder != "host-z" {
			t.Errorf("ready %v, %s", d.board.Ready(), d.keeper.Role())
		}

		release()
		b.untilStage(theRequest, stageProvisioned)

		if !d.keeper.Role().Holding {
			t.Errorf("the daemon is %s", d.keeper.Role())
		}
	})
}

// Rule: a key refused while Run goes on is noticed within a lease renewal, told
// once, asked about slowly, and puts no finalizer on anything.
func TestARefusedKeyIsNoticedWithinARenewal(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve(leased)
		b.wantServing(d, theRequest)
		b.ok(b.omni.RevokeKeys(t.Context(), "infra-provider:"+testID))

		revoked := time.Now()

		b.untilTrouble(d, "refuses the service account key")

		if took := time.Since(revoked); took > lease.DefaultRenew+time.Second {
			t.Errorf("noticed after %s", took)
		}

		b.pass(lease.DefaultStop)

		if d.keeper.Check() == nil {
			t.Error("it still works")
		}

		other := "talos-workers-bcdefg"
		b.ask(other)

		before := len(b.omni.Calls())

		b.pass(20 * time.Minute)

		if n := len(b.omni.Calls()) - before; n > 60 {
			t.Errorf("%d calls in twenty minutes", n)
		}

		if said := b.notReady(); len(said) != 1 {
			t.Errorf("told in %q", said)
		}

		b.wantNoFinalizer(other)
	})
}

// Rule: keys of somebody else are told apart, and put no finalizer on anything.
func TestKeysOfOthersAreToldApartAndDoNothing(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		key  func(b *bench) (string, error)
		want string
	}{
		"an administrator's": {
			func(b *bench) (string, error) { return b.omni.MintAdminKey(b.t.Context(), 24*time.Hour) },
			"is a user's or an administrator's, not that of the provider",
		},
		"another provider's": {
			func(b *bench) (string, error) { return b.omni.MintProviderKey(b.t.Context(), "another", 24*time.Hour) },
			"is that of another provider",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				key, err := tc.key(b)
				b.ok(err)

				d := b.serve(leased, func(o *Options) { o.OmniKey = key })
				b.untilTrouble(d, tc.want)
				b.ask(theRequest)
				b.pass(20 * time.Minute)
				b.wantNoFinalizer(theRequest)

				if said := b.notReady(); len(said) != 1 {
					t.Errorf("told in %q", said)
				}
			})
		})
	}
}

func (b *bench) wantNoFinalizer(id string) {
	b.t.Helper()

	r, err := safe.StateGet[*infra.MachineRequest](b.t.Context(), b.admin, infra.NewMachineRequest(id).Metadata())
	b.ok(err)

	if r.Metadata().Finalizers().Has(testID + sdkController) {
		b.t.Errorf("request %s has our finalizer", id)
	}
}

// Omni was away for longer than the lease: the same work goes on, uploads with it.
func TestWorkOutlivesALeaseThatNobodyElseHad(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve(leased)
		b.wantServing(d, theRequest)

		work := d.work
		b.omni.Stop()
		b.untilTrouble(d, "can not be reached")
		b.pass(2 * time.Hour)

		if d.keeper.Check() == nil {
			t.Error("it still works")
		}

		b.ok(b.omni.Start(t.Context()))
		b.wantServing(d, "talos-workers-bcdefg")

		if d.work != work {
			t.Error("the daemon began anew")
		}

		if said := b.notReady(); len(said) != 1 {
			t.Errorf("told in %q", said)
		}
	})
}

// Somebody else has held the lease meanwhile: what this process knew is old, so
// it begins anew when it holds the lease again.
func TestWorkBeginsAnewAfterAnotherHolder(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve(leased)
		b.wantServing(d, theRequest)

		work := d.work

		r, err := safe.StateGet[*lease.Resource](t.Context(), b.admin, metadata(leaseName, "lease"))
		b.ok(err)

		r.Lease().Holder, r.Lease().Host = "SOMEBODY", "host-z"
		b.ok(b.admin.Update(t.Context(), r))
		b.until("the daemon to stand by", func() bool { return !d.keeper.Role().Holding })
		b.pass(lease.DefaultDuration + time.Minute)
		b.wantServing(d, "talos-workers-bcdefg")

		if d.work == work {
			t.Error("the daemon went on with what it knew before")
		}

		b.remove(theRequest)
		b.untilReleased(theRequest)
	})
}
