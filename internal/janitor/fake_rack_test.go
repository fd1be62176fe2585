package janitor_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// stopping is how long an instance takes to stop.
const stopping = 20 * time.Second

// fakeRack is a rack with the state machines that removals meet.
type fakeRack struct {
	w *world

	silo      string
	projects  map[string]string // name by ID
	hideList  bool
	blind     map[string]error // answers to lists of a project
	instances map[string]*fakeInstance
	disks     map[string]*fakeDisk
	snapshots map[string]oxide.Snapshot
	addresses map[string]*oxide.FloatingIp
	groups    map[string]oxide.AntiAffinityGroup
	members   map[string]int // by group
}

type fakeInstance struct {
	oxide.Instance

	stops time.Time
}

type fakeDisk struct {
	oxide.Disk

	on string
}

func newFakeRack(w *world) *fakeRack {
	return &fakeRack{
		w: w, silo: testSilo, projects: map[string]string{projectID: "talos"}, blind: map[string]error{},
		instances: map[string]*fakeInstance{}, disks: map[string]*fakeDisk{}, snapshots: map[string]oxide.Snapshot{},
		addresses: map[string]*oxide.FloatingIp{}, groups: map[string]oxide.AntiAffinityGroup{}, members: map[string]int{},
	}
}

func goneErr(what string) error {
	return &rack.Error{Op: "reading", Class: rack.ClassGone, Status: 404, Code: "ObjectNotFound", Message: "not found: " + what}
}

func classErr(c rack.Class) error { return &rack.Error{Op: "calling", Class: c, Message: c.String()} }

func (r *fakeRack) addInstance(name, description string) *fakeInstance {
	i := &fakeInstance{Instance: oxide.Instance{
		Id: uuid.NewString(), Name: oxide.Name(name), Description: description, ProjectId: projectID, RunState: oxide.InstanceStateRunning,
	}}
	r.instances[i.Id] = i

	return i
}

func (r *fakeRack) addDisk(name, description, on string) *fakeDisk {
	d := &fakeDisk{Disk: oxide.Disk{Id: uuid.NewString(), Name: oxide.Name(name), Description: description, ProjectId: projectID}, on: on}
	r.disks[d.Id] = d

	return d
}

func (r *fakeRack) addAddress(name, description, on string) *oxide.FloatingIp {
	a := &oxide.FloatingIp{Id: uuid.NewString(), Name: oxide.Name(name), Description: description, ProjectId: projectID, Ip: "198.18.0.1", InstanceId: on}
	r.addresses[a.Id] = a

	return a
}

func (r *fakeRack) addGroup(name, description string, members int) string {
	id := uuid.NewString()
	r.groups[id] = oxide.AntiAffinityGroup{Id: id, Name: oxide.Name(name), Description: description, ProjectId: projectID}
	r.members[id] = members

	return id
}

// everything is the IDs of all objects.
func (r *fakeRack) everything() []string {
	return slices.Sorted(maps.Keys(r.names()))
}

func (r *fakeRack) names() map[string]string {
	out := map[string]string{}
	for id, o := range r.instances {
		out[id] = string(o.Name)
	}

	for id, o := range r.disks {
		out[id] = string(o.Name)
	}

	for id, o := range r.addresses {
		out[id] = string(o.Name)
	}

	for id, o := range r.groups {
		out[id] = string(o.Name)
	}

	return out
}

// bears says whether anything bears a key.
func (r *fakeRack) bears(key string) bool {
	for _, o := range r.instances {
		if strings.Contains(o.Description, key) {
			return true
		}
	}

	for _, o := range r.disks {
		if strings.Contains(o.Description, key) {
			return true
		}
	}

	for _, o := range r.addresses {
		if strings.Contains(o.Description, key) {
			return true
		}
	}

	return false
}

func listed[T any](ctx context.Context, r *fakeRack, op, project string, all func() []T) ([]T, error) {
	var out []T

	err := r.w.call(ctx, "rack "+op, func() error {
		if r.projects[project] == "" {
			return goneErr("project " + project)
		}

		if err := r.blind[project]; err != nil {
			return err
		}

		if project == projectID {
			out = all()
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

func (r *fakeRack) Me(ctx context.Context) (me *oxide.CurrentUser, err error) {
	err = r.w.call(ctx, "rack me", func() error { me = &oxide.CurrentUser{SiloId: r.silo}; return nil })

	return me, err
}

func (r *fakeRack) ListProjects(ctx context.Context) (out []oxide.Project, err error) {
	err = r.w.call(ctx, "rack list projects", func() error {
		if r.hideList {
			return classErr(rack.ClassForbidden)
		}

		for _, id := range slices.Sorted(maps.Keys(r.projects)) {
			out = append(out, oxide.Project{Id: id, Name: oxide.Name(r.projects[id])})
		}

		return nil
	})

	return out, err
}

func (r *fakeRack) ViewProject(ctx context.Context, nameOrID string) (p *oxide.Project, err error) {
	err = r.w.call(ctx, "rack view project", func() error {
		for id, name := range r.projects {
			if id == nameOrID || name == nameOrID {
				p = &oxide.Project{Id: id, Name: oxide.Name(name)}

				return nil
			}
		}

		return goneErr("project " + nameOrID)
	})

	return p, err
}

func (i *fakeInstance) view() oxide.Instance {
	if i.RunState == oxide.InstanceStateStopping && time.Since(i.stops) >= stopping {
		i.RunState = oxide.InstanceStateStopped
	}

	return i.Instance
}

func (d *fakeDisk) view() oxide.Disk {
	out := d.Disk
	if d.on != "" {
		out.State = oxide.DiskState{Value: &oxide.DiskStateAttached{Instance: d.on}}
	} else {
		out.State = oxide.DiskState{Value: &oxide.DiskStateDetached{}}
	}

	return out
}

func (r *fakeRack) ListInstances(ctx context.Context, project string) ([]oxide.Instance, error) {
	return listed(ctx, r, "list instances", project, func() (out []oxide.Instance) {
		for _, id := range slices.Sorted(maps.Keys(r.instances)) {
			out = append(out, r.instances[id].view())
		}

		return out
	})
}

func (r *fakeRack) ListDisks(ctx context.Context, project string) ([]oxide.Disk, error) {
	return listed(ctx, r, "list disks", project, func() (out []oxide.Disk) {
		for _, id := range slices.Sorted(maps.Keys(r.disks)) {
			out = append(out, r.disks[id].view())
		}

		return out
	})
}

func (r *fakeRack) ListSnapshots(ctx context.Context, project string) ([]oxide.Snapshot, error) {
	return listed(ctx, r, "list snapshots", project, func() []oxide.Snapshot { return slices.Collect(maps.Values(r.snapshots)) })
}

func (r *fakeRack) ListFloatingIPs(ctx context.Context, project string) ([]oxide.FloatingIp, error) {
	return listed(ctx, r, "list addresses", project, func() (out []oxide.FloatingIp) {
		for _, id := range slices.Sorted(maps.Keys(r.addresses)) {
			out = append(out, *r.addresses[id])
		}

		return out
	})
}

func (r *fakeRack) ListAntiAffinityGroups(ctx context.Context, project string) ([]oxide.AntiAffinityGroup, error) {
	return listed(ctx, r, "list groups", project, func() []oxide.AntiAffinityGroup { return slices.Collect(maps.Values(r.groups)) })
}

func (r *fakeRack) ListAntiAffinityGroupMembers(ctx context.Context, id string) ([]oxide.AntiAffinityGroupMember, error) {
	return listed(ctx, r, "list members", projectID, func() []oxide.AntiAffinityGroupMember {
		return make([]oxide.AntiAffinityGroupMember, r.members[id])
	})
}

func (r *fakeRack) ViewInstance(ctx context.Context, id string) (out *oxide.Instance, err error) {
	err = r.w.call(ctx, "rack view instance", func() error {
		i := r.instances[id]
		if i == nil {
			return goneErr("instance " + id)
		}

		v := i.view()
		out = &v

		return nil
	})

	return out, err
}

func (r *fakeRack) StopInstance(ctx context.Context, id string) error {
	return r.w.call(ctx, "rack stop instance "+r.nameOf(id), func() error {
		if i := r.instances[id]; i != nil && i.RunState == oxide.InstanceStateRunning {
			i.RunState, i.stops = oxide.InstanceStateStopping, time.Now()
		}

		return nil
	})
}

func (r *fakeRack) DeleteInstance(ctx context.Context, id string) error {
	return r.w.call(ctx, "rack delete instance "+r.nameOf(id), func() error {
		i := r.instances[id]

		switch {
		case i == nil:
			return goneErr("instance " + id)
		case i.view().RunState != oxide.InstanceStateStopped:
			r.w.t.Errorf("delete of instance %s, which is %s", i.Name, i.RunState)

			return classErr(rack.ClassInvalid)
		}

		delete(r.instances, id)

		for _, d := range r.disks {
			if d.on == id {
				d.on = ""
			}
		}

		for _, a := range r.addresses {
			if a.InstanceId == id {
				a.InstanceId = ""
			}
		}

		return nil
	})
}

func (r *fakeRack) DeleteDisk(ctx context.Context, id string) error {
	return r.w.call(ctx, "rack delete disk "+r.nameOf(id), func() error {
		d := r.disks[id]

		switch {
		case d == nil:
			return goneErr("disk " + id)
		case d.on != "":
			return classErr(rack.ClassInvalid)
		}

		delete(r.disks, id)

		return nil
	})
}

func (r *fakeRack) DeleteFloatingIP(ctx context.Context, id string) error {
	return r.w.call(ctx, "rack delete address "+r.nameOf(id), func() error {
		if a := r.addresses[id]; a != nil && a.InstanceId != "" {
			return classErr(rack.ClassInvalid)
		}

		delete(r.addresses, id)

		return nil
	})
}

// DeleteAntiAffinityGroup does not mind members, as a rack does not.
func (r *fakeRack) DeleteAntiAffinityGroup(ctx context.Context, id string) error {
	return r.w.call(ctx, "rack delete group "+r.nameOf(id), func() error {
		delete(r.groups, id)

		return nil
	})
}

func (r *fakeRack) nameOf(id string) string {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()

	return r.names()[id]
}

func (r *fakeRack) never(op string) error {
	r.w.t.Errorf("the janitor makes a call to %s", op)

	return fmt.Errorf("%s", op)
}

func (r *fakeRack) CreateInstance(context.Context, string, oxide.InstanceCreate) (*oxide.Instance, error) {
	return nil, r.never("create an instance")
}

func (r *fakeRack) ViewAntiAffinityGroup(context.Context, string, string) (*oxide.AntiAffinityGroup, error) {
	return nil, r.never("view a group by name")
}

func (r *fakeRack) CreateAntiAffinityGroup(context.Context, string, oxide.AntiAffinityGroupCreate) (*oxide.AntiAffinityGroup, error) {
	return nil, r.never("create a group")
}

func (r *fakeRack) ViewFloatingIPByName(context.Context, string, string) (*oxide.FloatingIp, error) {
	return nil, r.never("look for a floating address")
}

func (r *fakeRack) CreateFloatingIP(context.Context, string, oxide.FloatingIpCreate) (*oxide.FloatingIp, error) {
	return nil, r.never("make a floating address")
}

func (r *fakeRack) StartInstance(context.Context, string) error { return r.never("start an instance") }

func (r *fakeRack) ViewInstanceByName(context.Context, string, string) (*oxide.Instance, error) {
	return nil, r.never("view an instance by name")
}

func (r *fakeRack) ViewDiskByName(context.Context, string, string) (*oxide.Disk, error) {
	return nil, r.never("view a disk by name")
}

func (r *fakeRack) SeekInstanceDisks(context.Context, string, rack.Enough[oxide.Disk]) ([]oxide.Disk, error) {
	return nil, r.never("list an instance's disks")
}

// SeekInstances and SeekDisks list all, as for whom it is never enough.
func (r *fakeRack) SeekInstances(ctx context.Context, project string, _ rack.Enough[oxide.Instance]) ([]oxide.Instance, error) {
	return r.ListInstances(ctx, project)
}

func (r *fakeRack) SeekDisks(ctx context.Context, project string, _ rack.Enough[oxide.Disk]) ([]oxide.Disk, error) {
	return r.ListDisks(ctx, project)
}
