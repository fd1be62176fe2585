package site_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

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
