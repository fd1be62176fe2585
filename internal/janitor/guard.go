package janitor

import (
	"context"
	"fmt"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// guard is asked right before each call that stops or deletes something. It
// lets it happen only to what is due, and only if Omni says at this moment what
// it said at the look.
func (j *Janitor) guard(ctx context.Context, act instance.Act) error {
	o, due := j.removing[act.ID]
	if !due {
		return &instance.Wait{Reason: fmt.Sprintf("%q has not been an orphan for long enough", act.Name), After: soon}
	}

	if err := j.stillOrphan(ctx, o); err != nil {
		return err
	}

	// A call that fails is made again for as long as the object is there.
	if s := j.seen[act.ID]; s == nil || s.verb != act.Verb {
		j.cfg.Log.Info("removing an orphan: "+act.Verb, o.fields()...)

		if s != nil {
			s.verb = act.Verb
		}
	}

	j.cfg.Acted(act.Verb, string(o.Kind))

	return nil
}

func notNow(format string, args ...any) error {
	return &instance.Wait{Reason: fmt.Sprintf(format, args...), After: time.Minute}
}

// stillOrphan reads Omni again.
func (j *Janitor) stillOrphan(ctx context.Context, o Orphan) error {
	requests, err := j.cfg.Omni.Requests(ctx)
	if err != nil {
		return err
	}

	if len(requests) == 0 && j.despite == 0 && j.ourMachines > 0 {
		return notNow("Omni lists no machine request at all any more")
	}

	if o.Kind == naming.KindGroup {
		return j.stillNeedless(ctx, o, requests)
	}

	for _, r := range requests {
		if naming.RequestKey(r.ID) != o.Key {
			continue
		}

		if !o.dead {
			return notNow("request %s is there again", r.ID)
		}
	}

	if o.Request != "" {
		if err := j.stillGone(ctx, o); err != nil {
			return err
		}
	}

	return j.notConnected(ctx, o)
}

// stillNeedless reads the plans after the requests: a request that is not among
// those may have planned meanwhile.
func (j *Janitor) stillNeedless(ctx context.Context, o Orphan, requests []Request) error {
	states, err := j.cfg.Omni.States(ctx)
	if err != nil {
		return err
	}

	l := &look{requests: map[string]Request{}, states: map[string]State{}}

	for _, r := range requests {
		l.requests[r.ID] = r
	}

	for _, s := range states {
		l.states[s.ID] = s
	}

	if newKeys(l).needed(&o) {
		return notNow("a machine of its set needs it again")
	}

	return nil
}

// stillGone reads one request by its ID.
func (j *Janitor) stillGone(ctx context.Context, o Orphan) error {
	if o.dead {
		return j.stillDead(ctx, o.Request)
	}

	r, err := j.cfg.Omni.Request(ctx, o.Request)
	if err == nil && r != nil {
		err = notNow("request %s is there again", o.Request)
	}

	return err
}

// stillDead reads the state after the phase: it is made again for requests that
// are not tearing down.
func (j *Janitor) stillDead(ctx context.Context, id string) error {
	r, err := j.cfg.Omni.Request(ctx, id)
	if err != nil || r == nil {
		return err
	}

	hasStatus, err := j.cfg.Omni.HasStatus(ctx, id)
	if err != nil {
		return err
	}

	hasState, err := j.cfg.Omni.HasState(ctx, id)
	if err != nil {
		return err
	}

	if !r.dead(hasStatus, hasState) {
		return notNow("request %s is at work again", id)
	}

	return nil
}

func (j *Janitor) notConnected(ctx context.Context, o Orphan) error {
	machines, err := j.cfg.Omni.Machines(ctx)
	if err != nil {
		return err
	}

	for _, m := range machines {
		if m.Connected && (m.Request != "" && naming.RequestKey(m.Request) == o.Key || o.Kind == naming.KindInstance && sameUUID(m.UUID, o.ID)) {
			return notNow("its machine is connected in Omni")
		}
	}

	return nil
}
