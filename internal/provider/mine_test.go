package provider

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// slowSilo answers who we are after a while.
type slowSilo struct {
	Silo

	calls atomic.Int32
	err   error
}

func (s *slowSilo) Me(ctx context.Context) (*oxide.CurrentUser, error) {
	s.calls.Add(1)

	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(20 * time.Second):
	}

	return &oxide.CurrentUser{SiloId: "here", SiloName: "silo"}, s.err
}

// Invariant: only a plan of ours is carried out or taken down: of this owner, in
// this silo, of a format that is known.
func TestAPlanThatIsNotOursIsLeftAlone(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		p := &Provisioner{Silo: &slowSilo{}, Owner: "us"}

		for want, plan := range map[string]*specs.Plan{
			"":              {Format: 1, Owner: "us", SiloId: "here"},
			"newer version": {Format: planFormat + 1, Owner: "us", SiloId: "here"},
			"owner them":    {Format: 1, Owner: "them", SiloId: "here"},
			"silo there":    {Format: 1, Owner: "us", SiloId: "there"},
		} {
			plan.RequestId = theRequest
			err := p.mine(t.Context(), plan, theRequest)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q: %v", want, err)
			}
		}

		other := &specs.Plan{Format: 1, RequestId: "talos-workers-zzzzzz", Owner: "us", SiloId: "here"}
		if err := p.mine(t.Context(), other, theRequest); err == nil || !strings.Contains(err.Error(), `request "talos-workers-zzzzzz"`) {
			t.Errorf("the plan of another request: %v", err)
		}

		if err := p.mine(t.Context(), nil, ""); err != nil {
			t.Errorf("without a plan: %v", err)
		}
	})
}

// Invariant: nobody waits for somebody else's work: a rack that hangs costs each
// worker one wait, together, and a failure serves all who ask just then.
func TestOneLookAtTheSiloServesAll(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		silo := &slowSilo{err: errors.New("away")}
		p := &Provisioner{Silo: silo}
		began := time.Now()

		var group sync.WaitGroup

		for range 10 {
			group.Go(func() {
				if _, _, err := p.silo(t.Context()); err == nil {
					t.Error("no error")
				}
			})
		}

		group.Wait()

		if took := time.Since(began); took > 21*time.Second || silo.calls.Load() != 1 {
			t.Errorf("ten looks took %s and %d calls", took, silo.calls.Load())
		}

		time.Sleep(siloFailure)

		silo.err = nil

		if id, name, err := p.silo(t.Context()); err != nil || id != "here" || name != "silo" {
			t.Errorf("got %q %q %v", id, name, err)
		}

		if _, _, err := p.silo(t.Context()); err != nil || silo.calls.Load() != 2 {
			t.Errorf("%d calls, %v", silo.calls.Load(), err)
		}
	})
}
