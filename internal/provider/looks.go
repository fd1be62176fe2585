package provider

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"golang.org/x/sync/singleflight"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	// lookLife is how long one look at the rack serves the planning of all who ask
	// for the same: the machines of one class come together, and those that a
	// mistake holds back come again each minute.
	lookLife = 15 * time.Second
	// lookFailure is that for a look that failed, other than by what was not found.
	lookFailure = 3 * time.Second
)

// looks shares what planning reads of the rack. All of it is advice: between a
// plan and its carrying out anything may change, and the rack has the last word.
type looks struct {
	flight singleflight.Group

	mu   sync.Mutex
	seen map[string]glimpse
}

type glimpse struct {
	value any
	err   error
	until time.Time
}

// look answers what was seen lately, or reads it. One read serves all who ask at
// the same time, each of whom waits only as long as its own context.
func look[T any](ctx context.Context, l *looks, key string, read func(context.Context) (T, error)) (T, error) {
	if s, ok := l.recall(key); ok {
		v, _ := s.value.(T)

		return v, s.err
	}

	done := l.flight.DoChan(key, func() (any, error) {
		v, err := read(context.WithoutCancel(ctx))
		l.note(key, v, err)

		return v, err
	})

	select {
	case r := <-done:
		v, _ := r.Val.(T)

		return v, r.Err
	case <-ctx.Done():
		var none T

		return none, context.Cause(ctx)
	}
}

func (l *looks) recall(key string) (glimpse, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	s, ok := l.seen[key]

	return s, ok && time.Now().Before(s.until)
}

func (l *looks) note(key string, value any, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	life := lookLife
	if err != nil && rack.ClassOf(err) != rack.ClassGone {
		life = lookFailure
	}

	now := time.Now()
	maps.DeleteFunc(l.seen, func(_ string, s glimpse) bool { return now.After(s.until) })

	if l.seen == nil {
		l.seen = map[string]glimpse{}
	}

	l.seen[key] = glimpse{value, err, now.Add(life)}
}

// sharedSilo is the rack as planning reads it.
type sharedSilo struct {
	Silo

	looks *looks
}

func (p *Provisioner) sharedSilo() sharedSilo { return sharedSilo{p.Silo, &p.looks} }

// ViewProject implements Silo.
func (s sharedSilo) ViewProject(ctx context.Context, nameOrID string) (*oxide.Project, error) {
	return look(ctx, s.looks, "project "+nameOrID, func(ctx context.Context) (*oxide.Project, error) {
		return s.Silo.ViewProject(ctx, nameOrID)
	})
}

// ViewVPC implements Silo.
func (s sharedSilo) ViewVPC(ctx context.Context, projectID, nameOrID string) (*oxide.Vpc, error) {
	return look(ctx, s.looks, "vpc "+projectID+" "+nameOrID, func(ctx context.Context) (*oxide.Vpc, error) {
		return s.Silo.ViewVPC(ctx, projectID, nameOrID)
	})
}

// ViewSubnet implements Silo.
func (s sharedSilo) ViewSubnet(ctx context.Context, vpcID, nameOrID string) (*oxide.VpcSubnet, error) {
	return look(ctx, s.looks, "subnet "+vpcID+" "+nameOrID, func(ctx context.Context) (*oxide.VpcSubnet, error) {
		return s.Silo.ViewSubnet(ctx, vpcID, nameOrID)
	})
}

// ViewSubnetOf implements Silo.
func (s sharedSilo) ViewSubnetOf(ctx context.Context, projectID, vpcName, name string) (*oxide.VpcSubnet, error) {
	return look(ctx, s.looks, "subnet of "+projectID+" "+vpcName+" "+name, func(ctx context.Context) (*oxide.VpcSubnet, error) {
		return s.Silo.ViewSubnetOf(ctx, projectID, vpcName, name)
	})
}

// ViewAntiAffinityGroup implements Silo.
func (s sharedSilo) ViewAntiAffinityGroup(ctx context.Context, projectID, nameOrID string) (*oxide.AntiAffinityGroup, error) {
	return look(ctx, s.looks, "group "+projectID+" "+nameOrID, func(ctx context.Context) (*oxide.AntiAffinityGroup, error) {
		return s.Silo.ViewAntiAffinityGroup(ctx, projectID, nameOrID)
	})
}

// ListAntiAffinityGroupMembers implements Silo.
func (s sharedSilo) ListAntiAffinityGroupMembers(ctx context.Context, groupID string) ([]oxide.AntiAffinityGroupMember, error) {
	return look(ctx, s.looks, "members "+groupID, func(ctx context.Context) ([]oxide.AntiAffinityGroupMember, error) {
		return s.Silo.ListAntiAffinityGroupMembers(ctx, groupID)
	})
}

// ListIPPools implements Silo.
func (s sharedSilo) ListIPPools(ctx context.Context) ([]oxide.SiloIpPool, error) {
	return look(ctx, s.looks, "pools", s.Silo.ListIPPools)
}

// Utilization implements Silo.
func (s sharedSilo) Utilization(ctx context.Context) (*oxide.Utilization, error) {
	return look(ctx, s.looks, "utilization", s.Silo.Utilization)
}
