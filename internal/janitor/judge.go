package janitor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Orphan is an object of ours whose machine request is gone.
type Orphan struct {
	Kind naming.Kind `json:"kind"`
	ID   string      `json:"id"`
	Name string      `json:"name"`
	// State is the rack's, for an instance or a disk; the address for an IP.
	State     string `json:"state,omitempty"`
	Project   string `json:"project"`
	ProjectID string `json:"project_id"`
	// Request is the ID of the request, empty if only its key is known.
	Request string `json:"request,omitempty"`
	Key     string `json:"key"`
	// Reason is one line for people.
	Reason string `json:"reason"`

	// dead says that the request is there, beyond help.
	dead bool
	// busy says what holds an address or a group back, empty if nothing does.
	busy string
	// stray is set for scratch of an upload.
	stray *image.Stray
}

// finding is what a look comes to.
type finding struct {
	look    *look
	orphans []Orphan
	// machines is the number of our instances, lost of those that are orphans.
	machines, lost int
	// dead are the requests that nobody will ever let go; dangling the states,
	// bare the IDs of statuses and patches, of requests that are not there.
	dead     []Request
	dangling []State
	bare     []string
	// spared are the instances without a request whose machine is connected.
	spared []Orphan
	// marked are the keys of all our objects.
	marked map[string]bool
}

// judge compares the rack with Omni. It decides nothing that depends on time.
func (j *Janitor) judge(l *look) *finding {
	f := &finding{look: l, marked: map[string]bool{}}

	for _, id := range sorted(l.requests) {
		if r := l.requests[id]; r.dead(l.statuses[id], has(l.states, id)) {
			f.dead = append(f.dead, r)
		}
	}

	for _, id := range sorted(l.states) {
		if _, ok := l.requests[id]; !ok {
			f.dangling = append(f.dangling, l.states[id])
		}
	}

	for _, ids := range []map[string]bool{l.statuses, l.patches} {
		for _, id := range sorted(ids) {
			if !has(l.requests, id) && !has(l.states, id) && !slices.Contains(f.bare, id) {
				f.bare = append(f.bare, id)
			}
		}
	}

	f.judgeObjects(j, l)

	return f
}

// judgeObjects finds the orphans, in the order of their removal.
func (f *finding) judgeObjects(j *Janitor, l *look) {
	known := newKeys(l)
	for key, id := range j.names {
		known.names[key] = id
	}

	note := func(o Orphan, description string) {
		mark, ok := j.ours(description, o.Kind)
		if !ok {
			return
		}

		o.Kind, o.Key = mark.Kind, mark.Key
		f.marked[o.Key] = true

		if o.Kind == naming.KindInstance {
			f.machines++
		}

		if known.orphan(&o, description) {
			f.orphans = append(f.orphans, o)
		}
	}

	for _, p := range l.projects {
		at := Orphan{Project: p.name, ProjectID: p.id}

		for _, i := range p.instances {
			known.protect(i.Id, i.Description, l.machines, j)

			at.Kind, at.ID, at.Name, at.State = naming.KindInstance, i.Id, string(i.Name), string(i.RunState)
			note(at, i.Description)
		}

		for _, d := range p.disks {
			at.Kind, at.ID, at.Name, at.State = naming.KindBoot, d.Id, string(d.Name), string(d.State.State())
			note(at, d.Description)
		}

		for _, a := range p.addresses {
			at.Kind, at.ID, at.Name, at.State = naming.KindIP, a.Id, string(a.Name), a.Ip
			if a.InstanceId != "" {
				at.busy = "it is attached to instance " + a.InstanceId
			}

			note(at, a.Description)
			at.busy = ""
		}

		for _, g := range p.groups {
			at.Kind, at.ID, at.Name, at.State = naming.KindGroup, g.Id, string(g.Name), ""
			note(at, g.Description)
		}
	}

	f.spare(j, known)
}

// spare takes whatever belongs to a connected machine from the orphans.
func (f *finding) spare(j *Janitor, known *keys) {
	f.orphans = slices.DeleteFunc(f.orphans, func(o Orphan) bool {
		if known.connected[o.Key] == "" {
			return false
		}

		if o.Kind == naming.KindInstance {
			f.spared = append(f.spared, o)
		}

		return true
	})

	j.names = map[string]string{}

	for i := range f.spared {
		known.name(&f.spared[i])

		f.spared[i].Reason += fmt.Sprintf("; its machine is connected: if it is to go, `omnictl delete link %s`", known.connected[f.spared[i].Key])
	}

	for i := range f.orphans {
		known.name(&f.orphans[i])

		j.names[f.orphans[i].Key] = f.orphans[i].Request

		if f.orphans[i].Kind == naming.KindInstance {
			f.lost++
		}
	}
}

// ours reads the mark of an object of a kind; KindBoot stands for any disk of
// a machine.
func (j *Janitor) ours(description string, kind naming.Kind) (naming.Mark, bool) {
	mark, ok := naming.Parse(description)
	if !ok || mark.Owner != j.cfg.Owner || mark.Provider != j.cfg.Provider {
		return mark, false
	}

	return mark, mark.Kind == kind || kind == naming.KindBoot && mark.Kind == naming.KindData
}

// keys are the keys of marks, as far as Omni knows what they stand for.
type keys struct {
	requests map[string]Request // by key
	sets     map[string]string  // IDs of the sets of all requests, by key
	open     map[string]bool    // keys of the sets with a request whose plan is not known
	names    map[string]string  // IDs of requests that a state or a text names, by key
	held     map[string]bool    // keys of states that are not ours to touch
	dead     map[string]bool
	// connected are the UUIDs of machines that are connected in Omni, by key.
	connected map[string]string
	groups    map[string]bool // groups that a plan names, by ID or by planned name
}

func newKeys(l *look) *keys {
	k := &keys{
		requests: map[string]Request{}, sets: map[string]string{}, open: map[string]bool{}, names: map[string]string{},
		held: map[string]bool{}, dead: map[string]bool{}, connected: map[string]string{}, groups: map[string]bool{},
	}

	for id, r := range l.requests {
		key := naming.RequestKey(id)
		k.requests[key] = r
		k.dead[key] = r.dead(l.statuses[id], has(l.states, id))

		if r.Set != "" {
			k.sets[naming.RequestKey(r.Set)] = r.Set
			k.open[naming.RequestKey(r.Set)] = k.open[naming.RequestKey(r.Set)] || mayPlan(r, l.states[id])
		}
	}

	for id, s := range l.states {
		k.names[naming.RequestKey(id)] = id
		k.held[naming.RequestKey(id)] = s.Held != ""

		for _, g := range groupsOf(s.Spec) {
			k.groups[g] = true
		}
	}

	for _, m := range l.machines {
		if m.Connected && m.Request != "" {
			k.connected[naming.RequestKey(m.Request)] = m.UUID
		}
	}

	return k
}

// mayPlan says whether a request may yet name any group of its set in its plan,
// or does so in one that can not be read.
func mayPlan(r Request, s State) bool {
	return s.Held != "" || !r.TearingDown && s.Spec.GetPlan() == nil
}

// groupsOf are the groups that a state names: by ID, and that of the machine set
// by its planned name too.
func groupsOf(spec *specs.InstanceSpec) []string {
	plan := spec.GetPlan()
	all := slices.Clone(plan.GetAntiAffinityGroupIds())

	if g := plan.GetSetGroup(); g != nil {
		all = append(all, spec.GetSetGroupId(), plannedGroup(plan.GetProjectId(), g.GetName()))
	}

	return all
}

func plannedGroup(projectID, name string) string { return projectID + "/" + name }

// needed says whether a machine is in a group of its set, or may be about to be.
func (k *keys) needed(o *Orphan) bool {
	return k.open[o.Key] || k.groups[o.ID] || k.groups[plannedGroup(o.ProjectID, o.Name)]
}

// protect notes that the machine in an instance is connected. A guest reads the
// instance's ID, in one of two byte orders.
func (k *keys) protect(instanceID, description string, machines []Machine, j *Janitor) {
	mark, ok := j.ours(description, naming.KindInstance)
	if !ok || k.connected[mark.Key] != "" {
		return
	}

	for _, m := range machines {
		if m.Connected && sameUUID(m.UUID, instanceID) {
			k.connected[mark.Key] = m.UUID
		}
	}
}

func sameUUID(a, b string) bool {
	x, errX := uuid.Parse(a)
	y, errY := uuid.Parse(b)

	if errX != nil || errY != nil {
		return false
	}

	if x == y {
		return true
	}

	slices.Reverse(y[0:4])
	slices.Reverse(y[4:6])
	slices.Reverse(y[6:8])

	return x == y
}

// orphan tells whether an object's request is gone or dead, and writes into o
// what is known of it.
func (k *keys) orphan(o *Orphan, description string) bool {
	r, there := k.requests[o.Key]

	if o.Kind == naming.KindGroup {
		k.nameSet(o, description)

		return !k.needed(o)
	}

	if there && !k.dead[o.Key] || k.held[o.Key] {
		return false
	}

	if there {
		o.Request, o.dead = r.ID, true
		o.Reason = fmt.Sprintf("request %s is being removed and its state is gone", r.ID)

		return true
	}

	// One object of a machine tells it to all others.
	if k.names[o.Key] == "" {
		k.names[o.Key] = requestIn(o.Key, o.Name, description)
	}

	return true
}

// nameSet writes into a group which machine set it was made for.
func (k *keys) nameSet(o *Orphan, description string) {
	o.Reason = "no machine needs it"

	if k.sets[o.Key] == "" {
		k.sets[o.Key] = requestIn(o.Key, o.Name, description)
	}

	if set := k.sets[o.Key]; set != "" {
		o.Reason = fmt.Sprintf("no machine of the set %s needs it", set)
	}
}

// name writes into an orphan which request is gone, as far as any text said.
func (k *keys) name(o *Orphan) {
	if o.dead || o.Kind == naming.KindGroup {
		return
	}

	o.Reason = "no machine request has the key " + o.Key
	if o.Request = k.names[o.Key]; o.Request != "" {
		o.Reason = fmt.Sprintf("there is no request %s in Omni", o.Request)
	}
}

// requestIn finds the request's ID in the texts of an object. The key proves
// it, so anything may be tried.
func requestIn(key string, texts ...string) string {
	for _, text := range texts {
		for _, word := range strings.Fields(text) {
			for _, id := range []string{word, strings.TrimSuffix(word, ".")} {
				if naming.RequestKey(id) == key {
					return id
				}
			}
		}
	}

	return ""
}

func has[V any](m map[string]V, id string) bool {
	_, ok := m[id]

	return ok
}
