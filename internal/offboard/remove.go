package offboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	// between is the least time from one round to the next; it is no shorter than a
	// round takes, so that a large silo is not listed without a pause.
	between = time.Second
	// stopAgain is when a stop that had no effect is sent again: the rack accepts
	// some and loses them.
	stopAgain = 30 * time.Second
	// instancesAtOnce is how many instances are worked at side by side; all else
	// goes one by one, as deletions of disks side by side race in the rack.
	instancesAtOnce = 4
	// tries is how often a call that the rack refuses is made.
	tries = 10
)

// Config says what is removed.
type Config struct {
	Rack Rack
	// Projects are names or IDs; none for all of the silo and its images.
	Projects []string
	// Owner is one that may have nothing left but snapshots that its ID alone
	// proves to be its; zero if nobody says.
	Owner Owner
	// Images says that images go too.
	Images bool
	// Removed is told of each object once it is gone.
	Removed func(Object)
}

// Job is one removal.
type Job struct {
	cfg   Config
	owner Owner

	seen map[string]string // name of a project to its ID

	mu    sync.Mutex
	stops map[string]time.Time
	fails map[string]int
	why   map[string]string
	final map[string]bool
}

// New makes a job.
func New(cfg Config) *Job {
	return &Job{
		cfg: cfg, seen: map[string]string{},
		stops: map[string]time.Time{}, fails: map[string]int{}, why: map[string]string{}, final: map[string]bool{},
	}
}

// Remove removes what the owner has, and returns when all of it is gone, when
// nothing can be done about the rest, which left has with the reasons, or when
// ctx ends.
func (j *Job) Remove(ctx context.Context, owner Owner) (left []Object, last *Look, err error) {
	j.owner = owner

	known, blind := map[string]Object{}, 0

	for {
		began := time.Now()
		look, err := j.Look(ctx)

		switch {
		case err == nil:
			last, blind = look, 0
			j.settle(known, look)

			if j.round(ctx, look, look.Of(owner)); ctx.Err() == nil && j.ended(known) {
				return j.explained(known), last, nil
			}
		case blind >= tries || !rack.ClassOf(err).Passing():
			return j.explained(known), last, err
		default:
			blind++
		}

		select {
		case <-ctx.Done():
			return j.explained(known), last, context.Cause(ctx)
		case <-time.After(max(between, time.Since(began))):
		}
	}
}

// settle tells of what is gone since the last round.
func (j *Job) settle(known map[string]Object, look *Look) {
	there := map[string]bool{}

	for _, o := range look.Of(j.owner) {
		known[o.ID], there[o.ID] = o, true
	}

	for _, o := range inOrder(known) {
		if !there[o.ID] && look.proves(o) {
			delete(known, o.ID)

			if j.cfg.Removed != nil {
				j.cfg.Removed(o)
			}
		} else if !there[o.ID] {
			j.note(o, errHidden)
		}
	}
}

// ended says that there is nothing left that something can be done about.
func (j *Job) ended(known map[string]Object) bool {
	j.mu.Lock()
	defer j.mu.Unlock()

	for id := range known {
		if !j.final[id] {
			return false
		}
	}

	return true
}

func (j *Job) explained(known map[string]Object) []Object {
	left := inOrder(known)

	j.mu.Lock()
	defer j.mu.Unlock()

	for i := range left {
		left[i].Why = cmp.Or(j.why[left[i].ID], "there was no time left for it")
	}

	return left
}

// order is that of removal. Snapshots go before what proves them ours.
var order = []naming.Kind{
	naming.KindSnapshot, naming.KindInstance, naming.KindBoot, naming.KindData, naming.KindScratch, naming.KindIP, naming.KindGroup, naming.KindImage,
}

func inOrder(known map[string]Object) []Object {
	all := make([]Object, 0, len(known))
	for _, o := range known {
		all = append(all, o)
	}

	slices.SortFunc(all, func(a, b Object) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Project, b.Project), cmp.Compare(a.Name, b.Name))
	})

	return all
}

// round takes the next step with each object.
func (j *Job) round(ctx context.Context, look *Look, own []Object) {
	known := map[string]Object{}
	for _, o := range own {
		known[o.ID] = o
	}

	var (
		working sync.WaitGroup
		places  = make(chan struct{}, instancesAtOnce)
	)

	for _, o := range inOrder(known) {
		if ctx.Err() != nil {
			break
		}

		if o.Kind == naming.KindInstance {
			places <- struct{}{}

			working.Go(func() {
				j.note(o, j.step(ctx, o))
				<-places
			})

			continue
		}

		working.Wait()

		err := j.inUse(ctx, look, known, o)
		if err == nil {
			err = j.step(ctx, o)
		}

		j.note(o, err)
	}

	working.Wait()
}

// busy says whether there is something left to be done about anything but images.
func (j *Job) busy(known map[string]Object) bool {
	for id, o := range known {
		if o.Kind != naming.KindImage && !j.isFinal(id) {
			return true
		}
	}

	return false
}

func (j *Job) isFinal(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.final[id]
}

// errStays marks what only somebody else can do something about, errWaits what
// is done by itself.
var (
	errStays = errors.New("")
	errWaits = errors.New("")
)

func stays(format string, args ...any) error {
	return fmt.Errorf("%s%w", fmt.Sprintf(format, args...), errStays)
}

func waits(format string, args ...any) error {
	return fmt.Errorf("%s%w", fmt.Sprintf(format, args...), errWaits)
}

// errHidden is an object in a list that can not be read any more.
var errHidden = errors.New("whether it is gone can not be read")

// note keeps why an object is there still.
func (j *Job) note(o Object, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.final[o.ID] = false

	if err == nil {
		j.why[o.ID] = "its removal was asked for and it is there still"

		return
	}

	j.why[o.ID] = err.Error()

	switch rack.ClassOf(err) {
	case rack.ClassCredentials, rack.ClassForbidden, rack.ClassVersion:
		j.final[o.ID] = true

		return
	case rack.ClassInvalid, rack.ClassExists, rack.ClassGone:
		// A rack may also hide what the token may not change.
		j.fails[o.ID]++
	default:
	}

	if errors.Is(err, errHidden) {
		j.fails[o.ID]++
	}

	j.final[o.ID] = errors.Is(err, errStays) || j.fails[o.ID] >= tries
}

// inUse says what keeps an object that other things hang on.
func (j *Job) inUse(ctx context.Context, look *Look, known map[string]Object, o Object) error {
	switch {
	case o.holder != "":
		return j.held(known, o.holder, "it is attached to instance %s")
	case o.Kind == naming.KindGroup:
		return j.groupInUse(ctx, known, o)
	case o.Kind == naming.KindImage:
		return j.imageInUse(look, known, o)
	}

	return nil
}

func (j *Job) groupInUse(ctx context.Context, known map[string]Object, o Object) error {
	members, err := j.cfg.Rack.ListAntiAffinityGroupMembers(ctx, o.ID)
	if err != nil {
		return err
	}

	for _, m := range members {
		i, ok := m.Value.(*oxide.AntiAffinityGroupMemberInstance)
		if !ok {
			return stays("a member of it is not known to this version")
		}

		if err := j.held(known, i.Value.Id, "instance %s is a member of it"); err != nil {
			return err
		}
	}

	return nil
}

func (j *Job) imageInUse(look *Look, known map[string]Object, o Object) error {
	silo := o.projectID == ""

	switch {
	case !j.cfg.Images:
		return stays("images stay unless --images is given")
	case j.busy(known):
		return waits("images go last")
	case look.uses[o.ID] != "":
		return stays("%s stems from it", look.uses[o.ID])
	case silo && len(look.Unread) > 0, look.unread[o.projectID+" "+string(naming.KindBoot)]:
		return stays("disks that can not be listed may stem from it")
	}

	return nil
}

// held tells an instance that goes from one that stays.
func (j *Job) held(known map[string]Object, instanceID, format string) error {
	if _, ours := known[instanceID]; ours && !j.isFinal(instanceID) {
		return waits(format, instanceID)
	}

	return stays(format, instanceID)
}

// step reads an object again and does the next thing to it, if it still bears
// the owner's mark.
func (j *Job) step(ctx context.Context, o Object) error {
	switch o.Kind {
	case naming.KindInstance:
		return j.stepInstance(ctx, o)
	case naming.KindBoot, naming.KindData, naming.KindScratch:
		return j.stepDisk(ctx, o)
	case naming.KindSnapshot:
		s, err := j.cfg.Rack.ViewSnapshot(ctx, o.ID)
		if err != nil {
			return err
		}

		if !image.IsSnapshotOf(j.owner.ID, j.owner.Provider, s) {
			return errForeign
		}

		if s.State == oxide.SnapshotStateCreating {
			return waits("it is being made")
		}

		return j.cfg.Rack.DeleteSnapshot(ctx, o.ID)
	case naming.KindIP:
		return j.stepAddress(ctx, o)
	case naming.KindGroup:
		g, err := j.cfg.Rack.ViewAntiAffinityGroup(ctx, o.projectID, o.ID)
		if err := j.same(err, func() string { return g.Description }, o); err != nil {
			return err
		}

		return j.cfg.Rack.DeleteAntiAffinityGroup(ctx, o.ID)
	case naming.KindImage:
		i, err := j.cfg.Rack.ViewImage(ctx, o.ID)
		if err := j.same(err, func() string { return i.Description }, o); err != nil {
			return err
		}

		return j.cfg.Rack.DeleteImage(ctx, o.ID)
	case naming.KindNIC:
	}

	return errForeign
}

var errForeign = stays("it does not bear the owner's mark any more")

// same checks what was read of an object against what was listed.
func (j *Job) same(err error, description func() string, o Object) error {
	if err != nil {
		return err
	}

	mark, ok := naming.Parse(description())
	if !ok || mark.Kind != o.Kind || (Owner{mark.Owner, mark.Provider}) != j.owner {
		return errForeign
	}

	return nil
}

func (j *Job) stepInstance(ctx context.Context, o Object) error {
	i, err := j.cfg.Rack.ViewInstance(ctx, o.ID)
	if err := j.same(err, func() string { return i.Description }, o); err != nil {
		return err
	}

	switch i.RunState {
	case oxide.InstanceStateStopped, oxide.InstanceStateFailed:
		// Never on any other state: the rack refuses, but cuts the running
		// machine's network all the same.
		return j.cfg.Rack.DeleteInstance(ctx, o.ID)
	case oxide.InstanceStateRunning, oxide.InstanceStateStarting, oxide.InstanceStateRebooting,
		oxide.InstanceStateMigrating, oxide.InstanceStateRepairing:
		return j.stop(ctx, o)
	case oxide.InstanceStateStopping, oxide.InstanceStateCreating, oxide.InstanceStateDestroyed:
	}

	return waits("it is %s", i.RunState)
}

func (j *Job) stop(ctx context.Context, o Object) error {
	j.mu.Lock()
	last, asked := j.stops[o.ID]
	j.mu.Unlock()

	if asked && time.Since(last) < stopAgain {
		return waits("it was told to stop and has not yet")
	}

	if err := j.cfg.Rack.StopInstance(ctx, o.ID); err != nil {
		return err
	}

	j.mu.Lock()
	j.stops[o.ID] = time.Now()
	j.mu.Unlock()

	return waits("it is stopping")
}

func (j *Job) stepDisk(ctx context.Context, o Object) error {
	d, err := j.cfg.Rack.ViewDisk(ctx, o.ID)
	if err := j.same(err, func() string { return d.Description }, o); err != nil {
		return err
	}

	switch d.State.State() {
	case oxide.DiskStateStateDetached, oxide.DiskStateStateFaulted:
		return j.cfg.Rack.DeleteDisk(ctx, o.ID)
	case oxide.DiskStateStateImportingFromBulkWrites:
		return j.cfg.Rack.StopBulkWrite(ctx, o.ID)
	case oxide.DiskStateStateImportReady:
		return j.cfg.Rack.FinalizeImport(ctx, o.ID, "")
	case oxide.DiskStateStateCreating, oxide.DiskStateStateFinalizing, oxide.DiskStateStateMaintenance,
		oxide.DiskStateStateImportingFromUrl, oxide.DiskStateStateAttaching, oxide.DiskStateStateAttached,
		oxide.DiskStateStateDetaching, oxide.DiskStateStateDestroyed:
	}

	return waits("it is %s", d.State.State())
}

// stepAddress reads by name, as addresses are not read by ID.
func (j *Job) stepAddress(ctx context.Context, o Object) error {
	f, err := j.cfg.Rack.ViewFloatingIPByName(ctx, o.projectID, o.Name)
	if err := j.same(err, func() string { return f.Description }, o); err != nil {
		return err
	}

	switch {
	case f.Id != o.ID:
		return errForeign
	case f.InstanceId != "":
		return waits("it is attached to instance %s", f.InstanceId)
	}

	return j.cfg.Rack.DeleteFloatingIP(ctx, o.ID)
}
