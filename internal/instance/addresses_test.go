package instance

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// addressed is a planned state with two floating addresses of its own.
func (b *bench) addressed(requestID string) *specs.InstanceSpec {
	spec := b.planned(requestID)

	for i := range 2 {
		spec.Plan.ExternalIps = append(spec.Plan.ExternalIps, &specs.ExternalIPPlan{
			Type: floating, IpVersion: ipv4, Name: naming.FloatingIP(i, requestID),
		})
	}

	return spec
}

func (b *bench) wantAddresses(n int) {
	b.t.Helper()

	if all := must(b.rack.ListFloatingIPs(b.t.Context(), b.project.Id))(b.t); len(all) != n {
		b.t.Errorf("%d floating addresses, want %d", len(all), n)
	}
}

// Invariant: each floating address is made once, wherever the process dies, and all
// are there when the instance is made.
func TestDyingAnywhereMakesEachAddressOnce(t *testing.T) {
	t.Parallel()

	for dieAfter := range 10 {
		b := newBench(t)
		spec := b.addressed("r1")
		stored := proto.CloneOf(spec)

		for call := 0; ; call++ {
			err := b.create(t.Context(), spec)

			if call == dieAfter {
				// The process dies: what this call changed is not stored.
				spec = stored
				b.m = b.machines()

				continue
			}

			stored = proto.CloneOf(spec)

			if err == nil {
				break
			}

			if _, ok := AsWait(err); !ok || call > 50 {
				t.Fatalf("dying after call %d: %v", dieAfter, err)
			}
		}

		b.wantLeft(1, 3)
		b.wantAddresses(2)

		if n := b.sim.CallCount("floating_ip_create"); n != 2 {
			t.Errorf("dying after call %d: %d creates", dieAfter, n)
		}

		_, err := b.drive(spec, b.m.Remove)
		b.ok(err)
		b.wantLeft(0, 0)
		b.wantAddresses(0)
	}
}

// Invariant: a guard is asked before an address is deleted, and its word holds.
func TestAGuardKeepsAddresses(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.addressed("r1")

	_, err := b.drive(spec, b.create)
	b.ok(err)

	kept := errors.New("kept")
	guarded := b.m.Guarded(func(_ context.Context, act Act) error {
		if act.Kind == naming.KindIP {
			return kept
		}

		return nil
	})

	if _, err = b.drive(spec, guarded.Remove); !errors.Is(err, kept) {
		t.Errorf("got %v", err)
	}

	b.wantLeft(0, 0)
	b.wantAddresses(2)

	_, err = b.drive(spec, b.m.Remove)
	b.ok(err)
	b.wantAddresses(0)
}

// A request that never had an address of its own costs no look at addresses.
func TestATeardownWithoutAddressesDoesNotLookForThem(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.made("r1")

	_, err := b.drive(spec, b.m.Remove)
	b.ok(err)

	if n := b.sim.CallCount("floating_ip_list"); n != 0 {
		t.Errorf("%d looks", n)
	}
}
