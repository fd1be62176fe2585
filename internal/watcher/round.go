package watcher

import (
	"context"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// kind is what is wrong with a machine.
type kind string

// The kinds of findings, worst first.
const (
	vanished kind = "vanished"
	failed   kind = "failed"
	stopped  kind = "stopped"
	unjoined kind = "unjoined"
)

var kinds = []kind{vanished, failed, stopped, unjoined}

// finding is a machine that is not as it should be.
type finding struct {
	kind    kind
	machine Machine
	// description is the instance's, empty without one.
	description string
}

// view is what the rack said in one round.
type view struct {
	// instances are by ID, of all projects that could be read.
	instances map[string]*oxide.Instance
	// asked is when each project was asked; one that could not be read is absent.
	asked map[string]time.Time
	// blind are the projects that the token can not read, and why.
	blind map[string]string
}

// round looks at all machines once. An error means that some could not be looked
// at: of those the last findings stand.
func (w *Watcher) round(ctx context.Context) error {
	machines, err := w.cfg.Omni.Machines(ctx)
	if err != nil {
		return err
	}

	seen, failure := w.lists(ctx, machines)
	if ctx.Err() != nil {
		return ctx.Err()
	}

	now := w.compare(machines, seen)

	// The lists are of different moments: a machine whose teardown began between
	// them is rightly stopped. So news is believed only of machines that Omni
	// still wants after the rack has spoken.
	if w.news(now) {
		if machines, err = w.cfg.Omni.Machines(ctx); err != nil {
			return err
		}

		now = stillThere(now, machines)
	}

	w.tell(machines, now, seen)
	w.startAgain(ctx, now, seen)

	return failure
}

// lists asks the rack for each project of the machines.
func (w *Watcher) lists(ctx context.Context, machines []Machine) (view, error) {
	seen := view{instances: map[string]*oxide.Instance{}, asked: map[string]time.Time{}, blind: map[string]string{}}
	tried, wanted := map[string]bool{}, map[string]map[string]bool{}

	for _, m := range machines {
		if wanted[m.ProjectID] == nil {
			wanted[m.ProjectID] = map[string]bool{}
		}

		wanted[m.ProjectID][m.InstanceID] = true
	}

	var failure error

	for _, m := range machines {
		if tried[m.ProjectID] {
			continue
		}

		tried[m.ProjectID] = true
		asked := time.Now()
		bounded, cancel := context.WithTimeout(ctx, listDeadline)
		// That one is missing is told by nothing less than the whole list.
		all, err := w.cfg.Rack.SeekInstances(bounded, m.ProjectID, func(all []oxide.Instance) bool {
			return holds(all, wanted[m.ProjectID])
		})

		cancel()

		switch class := rack.ClassOf(err); {
		case err == nil:
			seen.asked[m.ProjectID] = asked

			for i := range all {
				seen.instances[all[i].Id] = &all[i]
			}
		case class == rack.ClassGone, class == rack.ClassForbidden:
			seen.blind[m.ProjectID] = rack.Reason(err)
		default:
			failure = err
		}
	}

	return seen, failure
}

// holds says whether all wanted instances are among these.
func holds(all []oxide.Instance, wanted map[string]bool) bool {
	found := 0

	for i := range all {
		if wanted[all[i].Id] {
			found++
		}
	}

	return found == len(wanted)
}

// compare finds what is wrong with each machine. A machine whose project was not
// read keeps its last finding.
func (w *Watcher) compare(machines []Machine, seen view) map[string]finding {
	out := map[string]finding{}

	for _, m := range machines {
		asked, read := seen.asked[m.ProjectID]
		if !read {
			if last, ok := w.findings[m.RequestID]; ok && last.machine.InstanceID == m.InstanceID {
				out[m.RequestID] = last
			}

			continue
		}

		f := finding{machine: m}
		i := seen.instances[m.InstanceID]

		if i != nil {
			f.description = i.Description
		}

		if f.kind = judge(m, i, asked, w.cfg.JoinTime); f.kind != "" {
			out[m.RequestID] = f
		}
	}

	return out
}

// judge says what is wrong with a machine, given its instance in the rack's list
// that was asked for at a time.
func judge(m Machine, i *oxide.Instance, asked time.Time, joinTime time.Duration) kind {
	switch {
	case i == nil && m.RunningSince.Before(asked):
		return vanished
	case i != nil && i.RunState == oxide.InstanceStateFailed:
		return failed
	case i != nil && i.RunState == oxide.InstanceStateStopped:
		return stopped
	case !m.Joined && asked.Sub(m.RunningSince) > joinTime:
		return unjoined
	default:
		return ""
	}
}

// news says whether something is found that was not found before.
func (w *Watcher) news(now map[string]finding) bool {
	for id, f := range now {
		if w.findings[id].kind != f.kind {
			return true
		}
	}

	return false
}

// stillThere are the findings of machines that are still watched, as they are
// now.
func stillThere(found map[string]finding, machines []Machine) map[string]finding {
	out := map[string]finding{}

	for _, m := range machines {
		f, ok := found[m.RequestID]
		if !ok || f.machine.InstanceID != m.InstanceID || f.kind == unjoined && m.Joined {
			continue
		}

		f.machine = m
		out[m.RequestID] = f
	}

	return out
}
