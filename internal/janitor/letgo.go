package janitor

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// letGo ends what is left in Omni of requests that have nothing in the rack any
// more.
func (j *Janitor) letGo(ctx context.Context, f *finding) {
	braked, _ := j.brake(f)

	for _, r := range f.dead {
		if ctx.Err() == nil && j.due("request "+r.ID, max(j.cfg.Grace, j.cfg.Settle)) {
			j.act("release", "request "+r.ID, "removing the finalizer of a request that nothing else would ever let go", r.ID,
				func() error { return j.release(ctx, f, r) })
		}
	}

	if braked != "" {
		return
	}

	for _, s := range f.dangling {
		if ctx.Err() == nil && j.due("state "+s.ID, j.cfg.Grace) {
			j.act("destroy", "state "+s.ID, "destroying the state of a request that is gone", s.ID,
				func() error { return j.destroy(ctx, f, s) })
		}
	}

	for _, id := range f.bare {
		if ctx.Err() == nil && j.due("bare "+id, j.cfg.Grace) {
			j.act("tidy", "bare "+id, "destroying status and config patches of a request that is gone", id,
				func() error { return j.tidy(ctx, id) })
		}
	}
}

// act does something, or only says so in a dry run. Omni may still hold what was
// destroyed: that is no success, and nothing to say at each look.
func (j *Janitor) act(action, what, text, request string, do func() error) {
	if j.cfg.DryRun {
		if j.once(what) {
			j.cfg.Log.Info("this would be done, if this were no dry run: "+text, zap.String("omni.request.id", request))
		}

		return
	}

	if err := do(); err != nil {
		j.tell(what, "not yet done: "+text, err, zap.String("omni.request.id", request))

		return
	}

	j.cfg.Acted(action, map[string]string{"release": "request", "destroy": "state", "tidy": "status"}[action])
	j.cfg.Log.Info("done: "+text, zap.String("omni.request.id", request))
}

// release frees a dead request whose absence from the rack the look has proved.
func (j *Janitor) release(ctx context.Context, f *finding, r Request) error {
	if f.marked[naming.RequestKey(r.ID)] {
		return notNow("something of request %s is still in the rack", r.ID)
	}

	if err := f.look.proves(r); err != nil {
		return err
	}

	if err := j.stillDead(ctx, r.ID); err != nil {
		return err
	}

	return j.cfg.Omni.Release(ctx, r.ID)
}

// destroy ends a dangling state: first what was made by its plan is proven
// gone, then the request is read once more.
func (j *Janitor) destroy(ctx context.Context, f *finding, s State) error {
	plan := s.Spec.GetPlan()

	switch {
	case s.Held != "":
		return errors.New(s.Held)
	case f.marked[naming.RequestKey(s.ID)]:
		return notNow("something of request %s is still in the rack", s.ID)
	case plan.GetOwner() != "" && plan.GetOwner() != j.cfg.Owner:
		return fmt.Errorf("it was planned by owner %s, and this provider is owner %s", plan.GetOwner(), j.cfg.Owner)
	case plan.GetSiloId() != "" && plan.GetSiloId() != f.look.silo:
		return fmt.Errorf("it was planned in silo %s, and the token leads to silo %s", plan.GetSiloId(), f.look.silo)
	}

	if plan.GetProjectId() != "" {
		// Nothing is due at the moment, so this only proves and waits.
		if err := j.machines.Remove(ctx, s.Spec); err != nil {
			return err
		}
	} else if err := f.look.proves(Request{ID: s.ID}); err != nil {
		return err
	}

	r, err := j.cfg.Omni.Request(ctx, s.ID)
	if err == nil && r != nil {
		err = notNow("request %s is there again", s.ID)
	}

	if err != nil {
		return err
	}

	if err := j.cfg.Omni.DestroyState(ctx, s.ID); err != nil {
		return err
	}

	return j.cfg.Omni.Tidy(ctx, s.ID)
}

func (j *Janitor) tidy(ctx context.Context, id string) error {
	r, err := j.cfg.Omni.Request(ctx, id)
	if err == nil && r != nil {
		err = notNow("request %s is there again", id)
	}

	if err != nil {
		return err
	}

	return j.cfg.Omni.Tidy(ctx, id)
}

// tellHeld logs what the look could not judge, or spared.
func (j *Janitor) tellHeld(f *finding) {
	for _, u := range f.look.unread {
		if j.due("unread "+u.ID, 0) && j.once("unread "+u.ID) {
			j.cfg.Log.Info("a project can not be read: nothing in it is judged", zap.String("oxide.project.id", u.ID),
				zap.String("oxide.project.name", u.Name), zap.Error(u.Err))
		}
	}

	for _, o := range f.spared {
		if j.due("spared "+o.ID, j.cfg.Grace) && j.once("spared "+o.ID) {
			j.cfg.Log.Warn("an instance has no machine request and its machine is connected in Omni: it is left alone", o.fields()...)
		}
	}
}
