package site_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// A rack that is still coming up refuses connections at the address that it
// will have, and a site that ends meanwhile leaves nothing running.
func TestARackThatComesUpLater(t *testing.T) {
	t.Parallel()

	d, err := plan.Default(1)
	if err != nil {
		t.Fatal(err)
	}

	for i := range d.Sleds[0].Disks {
		d.Sleds[0].Disks[i].Reports = plan.Never
	}

	for _, opened := range []bool{true, false} {
		s, err := site.Start(t.Context(), site.Config{RackLater: true, RackDescription: &d})
		if err != nil {
			t.Fatal(err)
		}

		if _, err := s.Operator.Inventory(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("before it is up: %v", err)
		}

		if opened {
			for _, disk := range d.Sleds[0].Disks {
				if err := s.RackSetup.Report(d.Sleds[0].Serial, disk.Serial); err != nil {
					t.Fatal(err)
				}
			}

			if err := s.WaitRack(t.Context()); err != nil {
				t.Fatal(err)
			}

			if got, err := s.Operator.Inventory(t.Context()); err != nil || got.Leftovers() != 0 {
				t.Errorf("when it is up: %+v, %v", got, err)
			}
		}

		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}

	// A description that can not be a rack is told.
	if s, err := site.Start(t.Context(), site.Config{RackDescription: &plan.Description{}}); err == nil {
		t.Errorf("a rack of nothing came up: %v", s.Close())
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A site is whole and empty at first, opens with the keys that it makes, and
// leaves nothing running.
func TestASiteOpensWithItsKeysAndEnds(t *testing.T) {
	t.Parallel()

	s, err := site.Start(t.Context(), site.Config{})
	if err != nil {
		t.Fatal(err)
	}

	rack, err := s.Operator.Inventory(t.Context())
	if err != nil || rack.Leftovers() != 0 || rack.Images() != 0 {
		t.Errorf("the rack has %+v, %v", rack, err)
	}

	requests, err := s.Operator.Requests(t.Context())
	if err != nil || len(requests) != 0 {
		t.Errorf("Omni has %+v, %v", requests, err)
	}

	if registered, err := s.Operator.ProviderRegistered(t.Context(), "oxide"); err != nil || registered {
		t.Errorf("a provider is there before any came: %v", err)
	}

	if key, err := s.ProviderKey(t.Context(), "oxide"); err != nil || !s.Omni.KnowsKey(t.Context(), key) {
		t.Errorf("the provider's key does not open Omni: %v", err)
	}

	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
