// Package offboard removes everything that an owner has made in a rack, when
// there is no Omni any more to ask: all it goes by are the marks in the
// descriptions of objects. What bears no mark, or one that can not be read, is
// counted and never touched.
//
// It keeps no record: each round lists the rack anew, so that one that was cut
// off anywhere is ended by the next.
package offboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Owner is whose an object is: an Omni account's provider.
type Owner struct {
	ID       string `json:"owner"`
	Provider string `json:"provider"`
}

// String is the form that people write: OWNER/PROVIDER.
func (o Owner) String() string { return o.ID + "/" + o.Provider }

// Object is one object with an owner's mark.
type Object struct {
	Kind    naming.Kind `json:"kind"`
	ID      string      `json:"id"`
	Name    string      `json:"name"`
	Project string      `json:"project,omitempty"` // empty for one of the silo
	// Why says what keeps it, empty if nothing does.
	Why string `json:"why,omitempty"`

	owner     Owner
	projectID string
	created   time.Time
	// holder is the instance that it is attached to.
	holder    string
	instance  oxide.InstanceState
	disk      oxide.DiskStateState
	imageID   string
	preparing bool
}

// Holding is what one owner has.
type Holding struct {
	Owner

	Objects map[naming.Kind]int `json:"objects"`
	// Oldest and Newest are when the first and the last of them were made.
	Oldest time.Time `json:"oldest"`
	Newest time.Time `json:"newest"`
}

// Look is what the rack holds.
type Look struct {
	Objects []Object
	// Strangers counts objects without a mark, Unparsable those whose text looks
	// like a mark and is none, or is not one of such an object.
	Strangers, Unparsable int
	// Unread are the lists that could not be read, a line each.
	Unread []string

	uses   map[string]string // image to a disk that stems from it
	named  bool              // projects were, and not the silo was looked at
	unread map[string]bool   // project ID and kind
	lost   map[string]bool   // ID of a named project that can not be read any more
}

// Whole says that everything in the silo was read.
func (l *Look) Whole() bool { return !l.named && len(l.Unread) == 0 }

// listing gathers a look.
type listing struct {
	*Look

	project oxide.Project
	// snapshots are those whose mark is their name.
	snapshots *[]nameless
}

type nameless struct {
	snapshot oxide.Snapshot
	object   Object
}

// Look lists all projects of the silo and the silo's images, or the projects that
// are named, of which those that can not be read are told of in Unread. It fails
// if there is none to look at.
func (j *Job) Look(ctx context.Context) (*Look, error) {
	l := &Look{uses: map[string]string{}, unread: map[string]bool{}, lost: map[string]bool{}, named: len(j.cfg.Projects) > 0}

	projects, err := j.projects(ctx, l)
	if err != nil {
		return nil, err
	}

	var snapshots []nameless

	for i := range projects {
		j.lookAt(ctx, listing{Look: l, project: projects[i], snapshots: &snapshots})

		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}

	if len(j.cfg.Projects) == 0 {
		read(ctx, listing{Look: l}, naming.KindImage, "", j.cfg.Rack.ListImages, listing.image)
	}

	l.claim(snapshots, j.cfg.Owner, j.owner)

	return l, ctx.Err()
}

func (j *Job) projects(ctx context.Context, l *Look) ([]oxide.Project, error) {
	if len(j.cfg.Projects) == 0 {
		all, err := j.cfg.Rack.ListProjects(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing the silo's projects, name those to look at with --project: %w", err)
		}

		return all, nil
	}

	var all []oxide.Project

	for _, name := range j.cfg.Projects {
		p, err := j.cfg.Rack.ViewProject(ctx, name)

		switch class := rack.ClassOf(err); {
		case class == rack.ClassGone || class == rack.ClassForbidden:
			l.miss(j.seen[name], fmt.Sprintf("project %q is not in the silo, or the token has no role in it", name))
		case err != nil:
			return nil, fmt.Errorf("project %q: %w", name, err)
		case !slices.ContainsFunc(all, func(other oxide.Project) bool { return other.Id == p.Id }):
			j.seen[name] = p.Id
			all = append(all, *p)
		}
	}

	if len(all) == 0 {
		return nil, errors.New(strings.Join(l.Unread, "; "))
	}

	return all, nil
}

// miss notes a project that is not listed. Its ID is empty if it never was.
func (l *Look) miss(projectID, why string) {
	l.Unread = append(l.Unread, why)
	l.lost[projectID] = true
}

func (j *Job) lookAt(ctx context.Context, l listing) {
	id, r := l.project.Id, j.cfg.Rack

	read(ctx, l, naming.KindInstance, id, r.ListInstances, func(l listing, i oxide.Instance) {
		l.add(i.Description, Object{
			ID: i.Id, Name: string(i.Name), created: at(i.TimeCreated), instance: i.RunState,
		}, naming.KindInstance)
	})
	read(ctx, l, naming.KindBoot, id, r.ListDisks, listing.disk)
	read(ctx, l, naming.KindSnapshot, id, r.ListSnapshots, listing.snapshot)
	read(ctx, l, naming.KindIP, id, r.ListFloatingIPs, func(l listing, f oxide.FloatingIp) {
		l.add(f.Description, Object{ID: f.Id, Name: string(f.Name), created: at(f.TimeCreated), holder: f.InstanceId}, naming.KindIP)
	})
	read(ctx, l, naming.KindGroup, id, r.ListAntiAffinityGroups, func(l listing, g oxide.AntiAffinityGroup) {
		l.add(g.Description, Object{ID: g.Id, Name: string(g.Name), created: at(g.TimeCreated)}, naming.KindGroup)
	})
	read(ctx, l, naming.KindImage, id, r.ListImages, listing.image)
}

// read takes one list, which is complete or counts as not read.
func read[T any](
	ctx context.Context, l listing, kind naming.Kind, projectID string, list func(context.Context, string) ([]T, error), add func(listing, T),
) {
	all, err := list(ctx, projectID)
	if err != nil {
		where := "the silo"
		if projectID != "" {
			where = fmt.Sprintf("project %q", l.project.Name)
		}

		l.unread[projectID+" "+string(listOf(kind))] = true
		l.Unread = append(l.Unread, where+": "+err.Error())

		return
	}

	for i := range all {
		add(l, all[i])
	}
}

// listOf is the kind whose list an object of the kind is in.
func listOf(kind naming.Kind) naming.Kind {
	if kind == naming.KindData || kind == naming.KindScratch {
		return naming.KindBoot
	}

	return kind
}

func (l listing) disk(d oxide.Disk) {
	o := Object{ID: d.Id, Name: string(d.Name), created: at(d.TimeCreated), disk: d.State.State(), imageID: d.ImageId}

	if a, ok := d.State.AsAttached(); ok {
		o.holder = a.Instance
	}

	if d.ImageId != "" {
		l.uses[d.ImageId] = fmt.Sprintf("disk %q of project %q", d.Name, l.project.Name)
	}

	l.add(d.Description, o, naming.KindBoot, naming.KindData, naming.KindScratch)
}

func (l listing) image(i oxide.Image) {
	l.add(i.Description, Object{ID: i.Id, Name: string(i.Name), created: at(i.TimeCreated)}, naming.KindImage)
}

func (l listing) snapshot(s oxide.Snapshot) {
	o := Object{
		Kind: naming.KindSnapshot, ID: s.Id, Name: string(s.Name), created: at(s.TimeCreated),
		Project: string(l.project.Name), projectID: l.project.Id, preparing: s.State == oxide.SnapshotStateCreating,
	}

	if _, marked := naming.Parse(s.Description); marked || strings.Contains(s.Description, "[oipo/") {
		l.add(s.Description, o, naming.KindSnapshot)

		return
	}

	*l.snapshots = append(*l.snapshots, nameless{s, o})
}

// claim gives snapshots that have their proof in their name to whoever is known
// by other marks, or besides.
func (l *Look) claim(snapshots []nameless, more ...Owner) {
	owners := map[Owner]bool{}
	for _, o := range more {
		owners[o] = true
	}

	for i := range l.Objects {
		owners[l.Objects[i].owner] = true
	}

	maps.DeleteFunc(owners, func(o Owner, _ bool) bool { return o.ID == "" || o.Provider == "" })

	for i := range snapshots {
		s := &snapshots[i]
		found := false

		for o := range owners {
			if image.IsSnapshotOf(o.ID, o.Provider, &s.snapshot) {
				s.object.owner, found = o, true
			}
		}

		if found {
			l.Objects = append(l.Objects, s.object)
		} else {
			l.Strangers++
		}
	}
}

func (l listing) add(description string, o Object, kinds ...naming.Kind) {
	mark, ok := naming.Parse(description)

	switch {
	case ok && slices.Contains(kinds, mark.Kind):
		o.Kind, o.owner = mark.Kind, Owner{mark.Owner, mark.Provider}
		o.Project, o.projectID = string(l.project.Name), l.project.Id
		l.Objects = append(l.Objects, o)
	case ok || strings.Contains(strings.ToLower(description), "[oipo/"):
		l.Unparsable++
	default:
		l.Strangers++
	}
}

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}

	return t.UTC()
}

// Owners are those that the marks name, the one with the oldest object first.
func (l *Look) Owners() []Holding {
	all := map[Owner]*Holding{}

	for i := range l.Objects {
		o := &l.Objects[i]

		h := all[o.owner]
		if h == nil {
			h = &Holding{Owner: o.owner, Objects: map[naming.Kind]int{}, Oldest: o.created, Newest: o.created}
			all[o.owner] = h
		}

		h.Objects[o.Kind]++

		if o.created.Before(h.Oldest) {
			h.Oldest = o.created
		}

		if o.created.After(h.Newest) {
			h.Newest = o.created
		}
	}

	list := make([]Holding, 0, len(all))
	for _, h := range slices.SortedFunc(maps.Values(all), func(a, b *Holding) int {
		return cmp.Or(a.Oldest.Compare(b.Oldest), cmp.Compare(a.String(), b.String()))
	}) {
		list = append(list, *h)
	}

	return list
}

// Of are an owner's objects.
func (l *Look) Of(owner Owner) []Object {
	var own []Object

	for i := range l.Objects {
		if l.Objects[i].owner == owner {
			own = append(own, l.Objects[i])
		}
	}

	return own
}

// proves says whether the look shows that an object which it has not is gone.
func (l *Look) proves(o Object) bool {
	return !l.lost[o.projectID] && !l.unread[o.projectID+" "+string(listOf(o.Kind))]
}

// Rack is what is asked of the rack. Lists are complete or fail.
type Rack interface {
	ListProjects(ctx context.Context) ([]oxide.Project, error)
	ViewProject(ctx context.Context, nameOrID string) (*oxide.Project, error)
	ListInstances(ctx context.Context, projectID string) ([]oxide.Instance, error)
	ListDisks(ctx context.Context, projectID string) ([]oxide.Disk, error)
	ListSnapshots(ctx context.Context, projectID string) ([]oxide.Snapshot, error)
	ListFloatingIPs(ctx context.Context, projectID string) ([]oxide.FloatingIp, error)
	ListAntiAffinityGroups(ctx context.Context, projectID string) ([]oxide.AntiAffinityGroup, error)
	ListAntiAffinityGroupMembers(ctx context.Context, groupID string) ([]oxide.AntiAffinityGroupMember, error)
	ListImages(ctx context.Context, projectID string) ([]oxide.Image, error)

	ViewInstance(ctx context.Context, id string) (*oxide.Instance, error)
	ViewDisk(ctx context.Context, id string) (*oxide.Disk, error)
	ViewSnapshot(ctx context.Context, id string) (*oxide.Snapshot, error)
	ViewFloatingIPByName(ctx context.Context, projectID, name string) (*oxide.FloatingIp, error)
	ViewAntiAffinityGroup(ctx context.Context, projectID, nameOrID string) (*oxide.AntiAffinityGroup, error)
	ViewImage(ctx context.Context, id string) (*oxide.Image, error)

	StopInstance(ctx context.Context, id string) error
	DeleteInstance(ctx context.Context, id string) error
	StopBulkWrite(ctx context.Context, diskID string) error
	FinalizeImport(ctx context.Context, diskID, snapshotName string) error
	DeleteDisk(ctx context.Context, id string) error
	DeleteSnapshot(ctx context.Context, id string) error
	DeleteFloatingIP(ctx context.Context, id string) error
	DeleteAntiAffinityGroup(ctx context.Context, id string) error
	DeleteImage(ctx context.Context, id string) error
}

var _ Rack = (*rack.Client)(nil)
