package provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"golang.org/x/sync/singleflight"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	// siloLife is how long the identity of the silo is believed: an address may
	// lead to another rack one day.
	siloLife = time.Minute
	// siloFailure is for how long one failed look serves all who ask.
	siloFailure = 3 * time.Second
)

// siloIdentity remembers which silo the token is of.
type siloIdentity struct {
	flight singleflight.Group

	mu   sync.Mutex
	id   string
	name string
	err  error
	at   time.Time
}

// fresh says whether what is remembered is still believed.
func (s *siloIdentity) fresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	life := siloLife
	if s.err != nil {
		life = siloFailure
	}

	return !s.at.IsZero() && time.Since(s.at) < life
}

func (s *siloIdentity) remembered() (id, name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.id, s.name, s.err
}

// tell notes what a look has shown.
func (s *siloIdentity) tell(me *oxide.CurrentUser, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.err, s.at = err, time.Now()
	if err == nil {
		s.id, s.name = me.SiloId, string(me.SiloName)
	}
}

// probedRack is the rack as the health probe asks it: what it learns of the silo
// serves all machines.
type probedRack struct {
	*rack.Client

	daemon *Daemon
}

// Me implements health.Rack.
func (r probedRack) Me(ctx context.Context) (*oxide.CurrentUser, error) {
	me, err := r.Client.Me(ctx)

	// One that failed is no news for who asks at another moment.
	if w := r.daemon.scene.work.Load(); w != nil && err == nil {
		w.identity.tell(me, nil)
	}

	return me, err
}

// silo answers the ID and the name of the silo that the rack's address and the
// token lead to. One look serves all who ask at the same time, each of whom
// waits only as long as its own context.
func (p *Provisioner) silo(ctx context.Context) (id, name string, err error) {
	s := &p.identity

	if s.fresh() {
		return s.remembered()
	}

	looked := s.flight.DoChan("", func() (any, error) {
		s.tell(p.Silo.Me(context.WithoutCancel(ctx)))

		return nil, nil
	})

	select {
	case <-looked:
	case <-ctx.Done():
		return "", "", context.Cause(ctx)
	}

	return s.remembered()
}

// sameSilo holds everything back when the plan was made for another silo: there
// its objects are, and here they would seem to be gone.
func (p *Provisioner) sameSilo(ctx context.Context, plan *specs.Plan) error {
	if plan.GetSiloId() == "" {
		return nil
	}

	id, name, err := p.silo(ctx)
	if err != nil {
		return err
	}

	if id != plan.GetSiloId() {
		return &instance.Mend{Reason: fmt.Sprintf("the daemon is linked to silo %q (%s), the machine was planned in silo %s: point OXIDE_HOST and the token at that one",
			name, id, plan.GetSiloId())}
	}

	return nil
}
