// Package janitor removes what nothing else would: the few things that stay
// behind when a process dies between the SDK's last two writes, when somebody
// removes resources from Omni by hand, or when the rack carries out a call long
// after its caller has gone.
//
// It takes a look, judges it, and acts on what has been judged the same by this
// process, by its own clock, for the whole grace:
//
//	look: the rack, completely, and then Omni, completely ─ or nothing is concluded
//	  │
//	  ▼
//	orphan     object with our mark, request gone   ─grace─▶ stop, wait, delete
//	dead       request is tearing down, has our     ─grace─▶ its objects are orphans;
//	           finalizer, neither status nor state           with none left: finalizer removed
//	dangling   state without a request              ─grace─▶ removed by its plan, then destroyed
//	bare       status or patches, nothing else      ─grace─▶ destroyed, if nobody holds them
//
// The order of a look proves that an object in it was made for a request that
// was there before: one that is not in Omni's list afterwards is gone. Right
// before each call that stops or deletes something the request is read again,
// by its ID where that is known, and all requests are listed again.
//
// # What is never an orphan
//
// An object without our mark, parsed strictly; an object of a request that is
// in Omni, whatever state it is in and whether or not its own state is there;
// anything of an instance whose machine is connected in Omni. That flag is
// minutes late, so it protects and never accuses. A group of a machine set is
// none while a plan names it, or a request of the set has no plan yet. An address
// that is attached and a group that has members wait for that to end. Network
// interfaces go with their instance.
//
// # The brake
//
// Nothing is removed from the rack, and no state destroyed, if Omni lists no
// request at all while instances of ours exist, as one that was restored from
// a backup does, or may exist in a project that can not be read; or if more than
// two instances and more than a tenth of ours are orphans. Health says so, and a person decides with `orphans delete`. It
// does not take the daemon out of service, and a finalizer whose request has
// nothing in the rack is removed all the same: that removes nothing else.
//
// # What others do
//
// Scratch of uploads is the image package's to judge; the janitor tells it in
// which projects it has seen scratch, also of runs whose record was forgotten.
// Unused images are the lifetime package's.
package janitor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
)

// Images is told what a look has seen of uploads.
type Images interface {
	Saw(projectID string, disks []oxide.Disk, snapshots []oxide.Snapshot)
}

// Strays finds and removes scratch for a person; *image.Manager.
type Strays interface {
	Strays(projectID string, disks []oxide.Disk, snapshots []oxide.Snapshot, runs []image.RunInfo) []image.Stray
	RemoveStray(ctx context.Context, s image.Stray) error
}

// Config is what a Janitor is made of.
type Config struct {
	Omni     Omni
	Rack     Rack
	Machines *instance.Machines
	// Images may be nil.
	Images Images
	// Strays serves Find and Delete, and may be nil.
	Strays Strays

	// Owner and Provider stand in the marks that are ours.
	Owner, Provider string
	// Projects are looked at besides those that Omni leads to, when the token may
	// not list the silo's. Names or IDs.
	Projects []string
	// Grace is how long something must have looked the same.
	Grace time.Duration
	// Settle is how long a create call may take effect after its caller has gone:
	// no finalizer is removed earlier, whatever the grace.
	Settle time.Duration
	// DryRun only logs what would be done.
	DryRun bool
	// Braked is told why the brake is on, in one line; empty when it is off. It
	// may be nil.
	Braked func(why string)
	// Looked is told of each look that was complete: how many orphans of each kind
	// there are. It may be nil.
	Looked func(orphans map[string]int)
	// Acted is told of each act: stop or delete and the kind of object in the rack;
	// release, destroy or tidy in Omni. It may be nil.
	Acted func(action, kind string)

	Log *zap.Logger
}

// restEvery is the time between two looks when the last one has found nothing, and
// maxEvery when it has; less for a short grace or while something is being removed.
// A look lists five kinds of objects in each project.
const (
	restEvery = 5 * time.Minute
	maxEvery  = time.Minute
	minEvery  = 250 * time.Millisecond
	// soon is the least time between two looks while something is being removed.
	soon = 2 * time.Second
)

// Janitor looks and removes. Its methods must not be called side by side.
type Janitor struct {
	cfg      Config
	machines *instance.Machines

	// projects are those known before, for tokens that may not list them.
	projects map[string]bool
	// names are the IDs of the requests of orphans, by key, as far as any object
	// of theirs has told. The key proves them.
	names   map[string]string
	seen    map[string]*sighting
	last    time.Time // of the last look
	failing bool
	// removing is what may be removed at the moment, by ID.
	removing map[string]Orphan
	// ourMachines is the number of our instances at the last look.
	ourMachines int
	told        map[string]string // what was logged last of what is held back, as in seen
	// despite is the number of instances that a person wants removed although
	// Omni lists no request.
	despite int
	// hand is what a person wants removed, by ID; nil in the loop.
	hand map[string]Orphan
}

// sighting is since when something has looked the same.
type sighting struct {
	since  time.Time
	looks  int
	logged bool
	// verb is what was last logged as being done to it.
	verb string
}

// New makes a janitor. Nothing happens before Run.
func New(cfg Config) *Janitor {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}

	if cfg.Braked == nil {
		cfg.Braked = func(string) {}
	}

	if cfg.Looked == nil {
		cfg.Looked = func(map[string]int) {}
	}

	if cfg.Acted == nil {
		cfg.Acted = func(string, string) {}
	}

	j := &Janitor{cfg: cfg, projects: map[string]bool{}}
	j.machines = cfg.Machines.Guarded(j.guard)
	j.forget()

	return j
}

// forget begins anew: what was seen before somebody else may have worked here
// proves nothing.
func (j *Janitor) forget() {
	j.seen, j.told, j.last = map[string]*sighting{}, map[string]string{}, time.Time{}
}

// Run looks again and again until ctx ends. It may be called again after that.
func (j *Janitor) Run(ctx context.Context) {
	j.forget()

	defer j.cfg.Braked("")

	for {
		next, err := j.Round(ctx)
		if ctx.Err() != nil {
			return
		}

		j.note(err)

		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
			t.Stop()

			return
		case <-t.C:
		}
	}
}

func (j *Janitor) every() time.Duration {
	most, part := maxEvery, j.cfg.Grace/3
	if len(j.seen) == 0 && !j.failing && !j.last.IsZero() {
		most, part = restEvery, j.cfg.Grace/2
	}

	return max(min(most, part), minEvery)
}

// note logs when looking begins to fail and when it works again: a rack may be
// away for an hour.
func (j *Janitor) note(err error) {
	if j.failing == (err != nil) {
		return
	}

	j.failing = err != nil

	if j.failing {
		j.cfg.Log.Info("orphans can not be looked for", zap.Error(err))
	} else {
		j.cfg.Log.Info("orphans are looked for again")
	}
}

// Round takes one look and acts on it. It answers when to take the next one.
func (j *Janitor) Round(ctx context.Context) (next time.Duration, err error) {
	l, err := j.lookAround(ctx)
	if err != nil {
		return max(min(maxEvery, j.cfg.Grace/3), minEvery), err
	}

	f := j.judge(l)
	j.sight(f)

	next = j.every()

	j.sawScratch(l)
	j.tellHeld(f)
	j.tellLooked(f)

	why, sure := j.brake(f)
	if why == "" || sure {
		j.cfg.Braked(why)
	}

	if why == "" {
		next = min(next, j.clean(ctx, f))
	}

	j.letGo(ctx, f)

	return next, nil
}

func (j *Janitor) tellLooked(f *finding) {
	counts := map[string]int{}
	for _, o := range f.orphans {
		counts[string(o.Kind)]++
	}

	j.cfg.Looked(counts)
}

func (j *Janitor) sawScratch(l *look) {
	if j.cfg.Images == nil {
		return
	}

	for _, p := range l.projects {
		j.cfg.Images.Saw(p.id, p.disks, p.snapshots)
	}
}

// sight counts this look for whatever it has found.
func (j *Janitor) sight(f *finding) {
	now := time.Now()

	// After a long time without a look nobody knows what was in between.
	if now.Sub(j.last) > max(j.cfg.Grace, 3*restEvery) {
		j.seen = map[string]*sighting{}
	}

	j.last = now
	before := j.seen
	j.seen = map[string]*sighting{}

	see := func(what string) {
		s := before[what]
		if s == nil {
			s = &sighting{since: now}
		}

		s.looks++
		j.seen[what] = s
	}

	for _, o := range f.orphans {
		see(o.ID)
	}

	for _, r := range f.dead {
		see("request " + r.ID)
	}

	for _, s := range f.dangling {
		see("state " + s.ID)
	}

	for _, id := range f.bare {
		see("bare " + id)
	}

	for _, o := range f.spared {
		see("spared " + o.ID)
	}

	for _, u := range f.look.unread {
		see("unread " + u.ID)
	}

	maps.DeleteFunc(j.told, func(what, _ string) bool { return j.seen[what] == nil })
}

// due says whether something was seen for the grace, and more than once.
func (j *Janitor) due(what string, grace time.Duration) bool {
	s := j.seen[what]

	return s != nil && s.looks > 1 && time.Since(s.since) >= grace
}

// once says whether something seen is logged for the first time.
func (j *Janitor) once(what string) bool {
	s := j.seen[what]
	if s == nil || s.logged {
		return false
	}

	s.logged = true

	return true
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
