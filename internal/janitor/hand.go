package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// lookAgain is how long apart two looks by hand are, where one proves too
// little.
const lookAgain = 10 * time.Second

// Report is what a look by hand has found.
type Report struct {
	Orphans []Orphan `json:"orphans"`
	// Instances is the number of this provider's instances, Requests that of its
	// machine requests.
	Instances int `json:"instances"`
	Requests  int `json:"requests"`
	// Brake is why a daemon removes none of them, empty if it will.
	Brake string `json:"brake,omitempty"`
	// Nothing says that Omni lists no request while there are instances.
	Nothing bool `json:"-"`
	// Connected are instances without a request whose machine is connected: they
	// are no orphans.
	Connected []Orphan `json:"connected,omitempty"`
	// Unread are projects that could not be listed, in words.
	Unread []string `json:"unread,omitempty"`
	// Partial says that the token may not list the silo's projects, so there may
	// be more of them.
	Partial bool `json:"partial,omitempty"`
}

// Lost is the number of instances among the orphans.
func (r *Report) Lost() int {
	n := 0

	for _, o := range r.Orphans {
		if o.Kind == naming.KindInstance {
			n++
		}
	}

	return n
}

// Find takes a look for a person. It is the same as that of the loop, without
// the grace: nothing is removed by it.
func (j *Janitor) Find(ctx context.Context) (*Report, error) {
	j.hand = map[string]Orphan{}

	f, err := j.look(ctx)
	if err != nil {
		return nil, err
	}

	// A request that is just beginning to be removed looks dead for a moment.
	if len(f.dead) > 0 {
		if err := pause(ctx, lookAgain); err != nil {
			return nil, err
		}

		if f, err = j.look(ctx); err != nil {
			return nil, err
		}
	}

	r := &Report{
		Orphans: []Orphan{}, Instances: f.machines, Requests: len(f.look.requests), Connected: f.spared, Partial: !f.look.whole,
		Nothing: len(f.look.requests) == 0 && f.machines > 0,
	}

	for _, o := range f.orphans {
		if !o.dead || j.seen["request "+o.Request].looks > 1 {
			r.Orphans = append(r.Orphans, o)
		}
	}

	for _, u := range f.look.unread {
		r.Unread = append(r.Unread, fmt.Sprintf("project %q: %s", u.Name, u.Err))
	}

	r.Brake = brakeText(f, r.Lost())

	return r, nil
}

func (j *Janitor) look(ctx context.Context) (*finding, error) {
	l, err := j.lookAround(ctx)
	if err != nil {
		return nil, err
	}

	f := j.judge(l)
	if err := j.judgeScratch(ctx, f); err != nil {
		return nil, err
	}

	j.sight(f)

	return f, nil
}

// judgeScratch adds the scratch that nobody works with. The loop leaves that to
// the image manager, which can wait.
func (j *Janitor) judgeScratch(ctx context.Context, f *finding) error {
	if j.cfg.Strays == nil {
		return nil
	}

	runs, err := j.cfg.Omni.ImportRuns(ctx)
	if err != nil {
		return err
	}

	for _, p := range f.look.projects {
		for _, s := range j.cfg.Strays.Strays(p.id, p.disks, p.snapshots, runs) {
			o := Orphan{
				Kind: naming.KindScratch, ID: s.DiskID, Name: s.Name, Project: p.name, ProjectID: p.id,
				Reason: "its upload has no record in Omni any more", stray: &s,
			}
			if s.Name == "" {
				o.Kind, o.Name = naming.KindSnapshot, s.Snapshots[0]
			}

			f.orphans = append(f.orphans, o)
		}
	}

	return nil
}

// ErrNothingListed is the refusal to delete anything while Omni lists nothing.
var ErrNothingListed = errors.New("Omni lists no machine request at all")

// Delete removes what a report has found, and returns when all of it is gone,
// when nothing can be done about the rest, or when ctx ends. instances is the
// number of instances that a person wants removed although Omni lists no
// request; it must be the report's.
func (j *Janitor) Delete(ctx context.Context, r *Report, instances int) (removed int, err error) {
	if r.Nothing && instances != r.Lost() {
		return 0, fmt.Errorf("%w, and %d instances of this provider exist", ErrNothingListed, r.Instances)
	}

	j.despite = instances
	left := map[string]Orphan{}

	for _, o := range r.Orphans {
		left[o.ID] = o
	}

	j.hand = left

	for {
		f, err := j.look(ctx)
		if err != nil {
			return len(r.Orphans) - len(left), err
		}

		var still []Orphan

		for _, o := range f.orphans {
			if has(left, o.ID) {
				still = append(still, o)
			}
		}

		f.orphans = still
		j.settle(left, f)

		if len(left) == 0 {
			return len(r.Orphans), nil
		}

		next := j.clean(ctx, f)
		j.removeStrays(ctx, f)

		if j.stuck(f) {
			return len(r.Orphans) - len(left), errors.New("the rest can not be removed now: the log says why")
		}

		if err := pause(ctx, min(next, soon)); err != nil {
			return len(r.Orphans) - len(left), fmt.Errorf("%d objects are still there: %w", len(left), err)
		}
	}
}

// settle takes from left what is gone, or no orphan any more. What was in a
// project that can not be read now may be there still.
func (j *Janitor) settle(left map[string]Orphan, f *finding) {
	for id, o := range left {
		found := slices.ContainsFunc(f.orphans, func(other Orphan) bool { return other.ID == id })
		hidden := slices.ContainsFunc(f.look.unread, func(u Unread) bool { return u.ID == o.ProjectID })

		if !found && !hidden {
			delete(left, id)
		}
	}
}

// stuck says that only what other things use is left.
func (j *Janitor) stuck(f *finding) bool {
	return !slices.ContainsFunc(f.orphans, func(o Orphan) bool {
		return o.busy == "" && o.Kind != naming.KindGroup
	}) && len(f.orphans) > 0 && j.seen[f.orphans[0].ID].looks > 3
}

func (j *Janitor) removeStrays(ctx context.Context, f *finding) {
	for _, o := range f.orphans {
		if o.stray == nil || ctx.Err() != nil {
			continue
		}

		err := j.stillStray(ctx, o)
		if err == nil {
			j.cfg.Log.Info("removing an orphan: undo an upload", o.fields()...)
			err = j.cfg.Strays.RemoveStray(ctx, *o.stray)
		}

		if err != nil {
			j.cfg.Log.Info("an orphan is still there", append(o.fields(), zap.NamedError("why", err))...)
		}
	}
}

func (j *Janitor) stillStray(ctx context.Context, o Orphan) error {
	runs, err := j.cfg.Omni.ImportRuns(ctx)
	if err != nil {
		return err
	}

	if slices.ContainsFunc(runs, func(r image.RunInfo) bool {
		return r.ID == o.stray.Run || o.stray.Run == "" && slices.Contains(r.ProjectIDs, o.ProjectID)
	}) {
		return notNow("its upload is recorded again")
	}

	return nil
}

// may says whether an orphan may be removed now: after the grace, or because a
// person said so.
func (j *Janitor) may(o Orphan) bool {
	if j.hand != nil {
		return has(j.hand, o.ID) && o.stray == nil
	}

	return j.due(o.ID, j.cfg.Grace)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// SortOrphans orders them for people: by project, request, and as they are
// removed.
func SortOrphans(orphans []Orphan) {
	slices.SortStableFunc(orphans, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Request, b.Request), cmp.Compare(a.Key, b.Key))
	})
}
