package provider

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
)

// siloLife is how long the identity of the silo is believed: an address may lead
// to another rack one day.
const siloLife = time.Minute

// siloIdentity remembers which silo the token is of.
type siloIdentity struct {
	mu   sync.Mutex
	id   string
	name string
	at   time.Time
}

// silo answers the ID and the name of the silo that the rack's address and the
// token lead to.
func (p *Provisioner) silo(ctx context.Context) (id, name string, err error) {
	s := &p.identity

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.id != "" && time.Since(s.at) < siloLife {
		return s.id, s.name, nil
	}

	me, err := p.Silo.Me(ctx)
	if err != nil {
		return "", "", err
	}

	s.id, s.name, s.at = me.SiloId, string(me.SiloName), time.Now()

	return s.id, s.name, nil
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
