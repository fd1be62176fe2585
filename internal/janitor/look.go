package janitor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Rack is what is asked of the rack, besides what a removal asks. Lists are
// complete or fail.
type Rack interface {
	Me(ctx context.Context) (*oxide.CurrentUser, error)
	ListProjects(ctx context.Context) ([]oxide.Project, error)
	ViewProject(ctx context.Context, nameOrID string) (*oxide.Project, error)
	ListInstances(ctx context.Context, projectID string) ([]oxide.Instance, error)
	ListDisks(ctx context.Context, projectID string) ([]oxide.Disk, error)
	ListSnapshots(ctx context.Context, projectID string) ([]oxide.Snapshot, error)
	ListFloatingIPs(ctx context.Context, projectID string) ([]oxide.FloatingIp, error)
	ListAntiAffinityGroups(ctx context.Context, projectID string) ([]oxide.AntiAffinityGroup, error)
	ListAntiAffinityGroupMembers(ctx context.Context, groupID string) ([]oxide.AntiAffinityGroupMember, error)
	DeleteFloatingIP(ctx context.Context, id string) error
	DeleteAntiAffinityGroup(ctx context.Context, id string) error
}

// project is one project, listed completely.
type project struct {
	id, name  string
	instances []oxide.Instance
	disks     []oxide.Disk
	snapshots []oxide.Snapshot
	addresses []oxide.FloatingIp
	groups    []oxide.AntiAffinityGroup
}

// look is the rack and then Omni, each listed completely. The order matters:
// whatever is in the rack was made for a request that was there before it.
type look struct {
	silo string
	// whole says that no project of the silo is missing.
	whole    bool
	projects []project
	// unread are the projects that could not be listed; nothing in them is
	// judged.
	unread []Unread

	requests map[string]Request
	statuses map[string]bool
	patches  map[string]bool
	states   map[string]State
	machines []Machine
}

// Unread is a project that could not be listed completely.
type Unread struct {
	ID, Name string
	Err      error
}

// hidden says that the token may not see something.
func hidden(err error) bool {
	c := rack.ClassOf(err)

	return c == rack.ClassForbidden || c == rack.ClassGone
}

// lookAround takes a look. Its error means that nothing may be concluded.
func (j *Janitor) lookAround(ctx context.Context) (*look, error) {
	l := &look{}

	me, err := j.cfg.Rack.Me(ctx)
	if err != nil {
		return nil, err
	}

	l.silo = me.SiloId

	projects, err := j.cfg.Rack.ListProjects(ctx)

	switch {
	case err == nil:
		l.whole = true
	case hidden(err):
		if projects, err = j.knownProjects(ctx); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}

	for i := range projects {
		p, err := j.listProject(ctx, projects[i])

		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			l.unread = append(l.unread, Unread{ID: projects[i].Id, Name: string(projects[i].Name), Err: err})
		default:
			l.projects = append(l.projects, *p)
		}
	}

	return l, j.readOmni(ctx, l)
}

// knownProjects are those that Omni leads to. They are enough for a token that
// may not list the silo's projects only as long as something in Omni still
// names each of them.
func (j *Janitor) knownProjects(ctx context.Context) ([]oxide.Project, error) {
	names := map[string]bool{}

	for _, p := range j.cfg.Projects {
		names[p] = true
	}

	states, err := j.cfg.Omni.States(ctx)
	if err != nil {
		return nil, err
	}

	for _, s := range states {
		names[s.Spec.GetPlan().GetProjectId()] = true
	}

	runs, err := j.cfg.Omni.ImportRuns(ctx)
	if err != nil {
		return nil, err
	}

	for _, r := range runs {
		for _, p := range r.ProjectIDs {
			names[p] = true
		}
	}

	requests, err := j.cfg.Omni.Requests(ctx)
	if err != nil {
		return nil, err
	}

	for _, r := range requests {
		names[r.Project] = true
	}

	maps.Copy(names, j.projects)
	delete(names, "")

	var all []oxide.Project

	for _, n := range slices.Sorted(maps.Keys(names)) {
		p, err := j.cfg.Rack.ViewProject(ctx, n)

		switch {
		case rack.ClassOf(err) == rack.ClassGone:
		case err != nil:
			return nil, err
		case !slices.ContainsFunc(all, func(other oxide.Project) bool { return other.Id == p.Id }):
			all = append(all, *p)
			j.projects[p.Id] = true
		}
	}

	return all, nil
}

func (j *Janitor) listProject(ctx context.Context, of oxide.Project) (*project, error) {
	p := &project{id: of.Id, name: string(of.Name)}

	var err error

	if p.instances, err = j.cfg.Rack.ListInstances(ctx, p.id); err != nil {
		return nil, err
	}

	if p.disks, err = j.cfg.Rack.ListDisks(ctx, p.id); err != nil {
		return nil, err
	}

	if p.snapshots, err = j.cfg.Rack.ListSnapshots(ctx, p.id); err != nil {
		return nil, err
	}

	if p.addresses, err = j.cfg.Rack.ListFloatingIPs(ctx, p.id); err != nil {
		return nil, err
	}

	if p.groups, err = j.cfg.Rack.ListAntiAffinityGroups(ctx, p.id); err != nil {
		return nil, err
	}

	return p, nil
}

// readOmni is the second half of a look.
func (j *Janitor) readOmni(ctx context.Context, l *look) error {
	requests, err := j.cfg.Omni.Requests(ctx)
	if err != nil {
		return err
	}

	// After the requests: one that is tearing down gets neither any more.
	statuses, err := j.cfg.Omni.Statuses(ctx)
	if err != nil {
		return err
	}

	patches, err := j.cfg.Omni.Patches(ctx)
	if err != nil {
		return err
	}

	states, err := j.cfg.Omni.States(ctx)
	if err != nil {
		return err
	}

	if l.machines, err = j.cfg.Omni.Machines(ctx); err != nil {
		return err
	}

	l.requests, l.statuses, l.patches, l.states = map[string]Request{}, set(statuses), set(patches), map[string]State{}

	for _, r := range requests {
		l.requests[r.ID] = r
	}

	for _, s := range states {
		l.states[s.ID] = s
	}

	return nil
}

func set(ids []string) map[string]bool {
	m := map[string]bool{}
	for _, id := range ids {
		m[id] = true
	}

	return m
}

// proves says whether the look shows the absence of everything that may have
// been made for a request whose state is gone, and if not, why.
func (l *look) proves(r Request) error {
	if len(l.unread) > 0 {
		return fmt.Errorf("project %q can not be read: %w", l.unread[0].Name, l.unread[0].Err)
	}

	for _, s := range l.states {
		if silo := s.Spec.GetPlan().GetSiloId(); silo != "" && silo != l.silo {
			return fmt.Errorf("the token leads to silo %s and machine %s was planned in silo %s", l.silo, s.ID, silo)
		}
	}

	if l.whole || r.Project == "" || slices.ContainsFunc(l.projects, func(p project) bool { return p.id == r.Project || p.name == r.Project }) {
		return nil
	}

	return fmt.Errorf("project %q of its class can not be read, and the token may not list the silo's projects", r.Project)
}
