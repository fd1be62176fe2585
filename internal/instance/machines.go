// Package instance makes, starts and removes the Oxide instance of one machine
// request, from the plan that is stored in Omni.
//
// Every function looks at the rack first, does at most one thing to each
// object, and returns: nil when its promise holds, a *Wait when it must be
// called again later, a *Mend when a person must act, or the rack's error.
// Nothing sleeps and nothing polls in a loop. The state in the spec is changed
// only together with such a return, so that the caller can store it before the
// next side effect.
//
// Create, from the left, each arrow one call of the function or more:
//
//	no attempt ─stored─> attempt ─look by name─┬─ ours ──────────> adopted: ID stored ─> disks stored
//	     ^                                     ├─ a stranger's ──> Mend
//	     │                                     └─ absent ─ create ┬─ answered ─> ID stored ─> disks stored
//	     └──── refused: the reason is kept, tried again ──────────┤
//	     └──── no answer: the attempt is unsure, look again ──────┘
//
// The look by name is left out where no call of ours can have gone out before: the
// rack refuses a name that is taken, and then it is looked at.
//
// The anti-affinity group of the machine's set is there before the first attempt
// (setgroup.go).
//
// The floating addresses that are made for an instance come before it, in the same
// way, one after another.
//
// Start:
//
//	stopped, failed ─ start ─> starting ─> running: done
//	     └─ refused (507): reason kept, again with backoff
//	gone, proven ─> ErrVanished
//
// Remove:
//
//	running, starting … ─ stop ─> stopping ─> stopped, failed ─ delete ─> disks ─ delete ─> addresses ─ delete ─> done
//	     └─ stop again when it had no effect
//	absent ─ proof by a complete list ─> disks ─> addresses ─> done, but not before an unsure create has settled
package instance

import (
	"context"
	"sync"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/backoff"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Rack is what this package asks of the rack.
type Rack interface {
	CreateInstance(ctx context.Context, projectID string, i oxide.InstanceCreate) (*oxide.Instance, error)
	ViewInstance(ctx context.Context, id string) (*oxide.Instance, error)
	ViewInstanceByName(ctx context.Context, projectID, name string) (*oxide.Instance, error)
	ListInstances(ctx context.Context, projectID string) ([]oxide.Instance, error)
	SeekInstances(ctx context.Context, projectID string, enough rack.Enough[oxide.Instance]) ([]oxide.Instance, error)
	SeekInstanceDisks(ctx context.Context, id string, enough rack.Enough[oxide.Disk]) ([]oxide.Disk, error)
	StartInstance(ctx context.Context, id string) error
	StopInstance(ctx context.Context, id string) error
	DeleteInstance(ctx context.Context, id string) error
	ViewDiskByName(ctx context.Context, projectID, name string) (*oxide.Disk, error)
	SeekDisks(ctx context.Context, projectID string, enough rack.Enough[oxide.Disk]) ([]oxide.Disk, error)
	DeleteDisk(ctx context.Context, id string) error
	ListProjects(ctx context.Context) ([]oxide.Project, error)
	ViewAntiAffinityGroup(ctx context.Context, projectID, nameOrID string) (*oxide.AntiAffinityGroup, error)
	CreateAntiAffinityGroup(ctx context.Context, projectID string, g oxide.AntiAffinityGroupCreate) (*oxide.AntiAffinityGroup, error)
	FloatingIPs
}

// Config says whose instances these are, and the limits.
type Config struct {
	Rack Rack
	// Owner and Provider stand in every mark.
	Owner, Provider string
	// Run is the running process, for marks.
	Run string
	// MaxCreates bounds the create calls in flight. Starts, stops and deletes of
	// instances together are bound to half of it.
	MaxCreates int
	// Silo reads afresh which silo the rack's address leads to.
	Silo func(ctx context.Context) (string, error)
	// Wanted reads afresh whether Omni wants a request's machine. Nil is yes.
	Wanted func(ctx context.Context, requestID string) (bool, error)
	// Settle is how long after a create without an answer the planned names
	// must have been absent before a teardown ends.
	Settle time.Duration
}

// Machines makes and removes instances. It is safe for concurrent use; calls
// for one request must not overlap.
type Machines struct {
	cfg     Config
	creates *Places
	// starts bounds starts, stops and deletes of instances together: they block
	// as long as the rack takes, and must leave workers for other requests.
	starts *Places
	// deletes is one place: the rack gets parallel deletes of disks wrong at
	// times, and a disk then comes back faulted under another name.
	deletes *Places
	// refusedCreates and refusedStarts have one of many that are alike try for all.
	refusedCreates, refusedStarts *backoff.Shared

	now func() time.Time
	// since is when this process began: whatever an earlier one had under way was
	// given up by then.
	since time.Time
	// guard is asked before each call that a removal makes, unless it is nil.
	guard Guard

	*memory
}

// memory is what this process remembers of objects and requests.
type memory struct {
	mu    sync.Mutex
	stops map[string]stop
	// starting are when instances that were not seen running yet were told to start.
	starting map[string]told
	// startTime is about how long a start takes here.
	startTime time.Duration
	// faster is when it is tried next whether one takes less.
	faster time.Time
	tries  map[string]try
	// gone is when instances were deleted by this process: the rack has said so.
	gone map[string]time.Time
	// rolls are the last lists of projects in which many instances start or stop.
	rolls map[string]roll
	// gaveUp is when this process last gave up a create without an answer. It is
	// stored too, unless the link to Omni ended with the call.
	gaveUp map[string]time.Time
	// stamped is when this process last began an attempt to create, by request, and
	// by addressKey.
	stamped map[string]time.Time
	// untried are the requests whose attempt was stamped here and not called under
	// yet, with no call before it of which the outcome is not known.
	untried map[string]bool
	// lines are where requests wait for a turn, by the key of their places.
	lines map[string]line
	// claims are which requests make a group, by project and name.
	claims map[string]claim
}

// New makes Machines.
func New(cfg Config) *Machines {
	m := &Machines{
		cfg:     cfg,
		creates: NewPlaces(cfg.MaxCreates, time.Second),
		starts:  NewPlaces(cfg.MaxCreates/2, 200*time.Millisecond),
		deletes: NewPlaces(1, 200*time.Millisecond),
		now:     time.Now,
		since:   time.Now(),
		memory: &memory{
			stops: map[string]stop{}, starting: map[string]told{}, startTime: firstStartTime, untried: map[string]bool{}, tries: map[string]try{}, rolls: map[string]roll{}, gone: map[string]time.Time{},
			lines: map[string]line{}, claims: map[string]claim{}, gaveUp: map[string]time.Time{}, stamped: map[string]time.Time{},
		},
	}

	now := func() time.Time { return m.now() }
	m.refusedCreates, m.refusedStarts = newShared(now), newShared(now)

	return m
}

func (m *Machines) mark(requestID string, kind naming.Kind) naming.Mark {
	return naming.Mark{
		Owner: m.cfg.Owner, Provider: m.cfg.Provider, Kind: kind,
		Key: naming.RequestKey(requestID), Run: m.cfg.Run,
	}
}

// Ours says whether an instance's description bears our mark for the request.
func (m *Machines) Ours(description, requestID string) bool {
	return m.ours(description, requestID, naming.KindInstance)
}

// ours says whether a description bears our mark of this kind for this request.
func (m *Machines) ours(description, requestID string, kinds ...naming.Kind) bool {
	return m.marked(description, naming.RequestKey(requestID), kinds...)
}

// marked says the same for a request that is known by the key of its marks.
func (m *Machines) marked(description, key string, kinds ...naming.Kind) bool {
	mark, ok := naming.Parse(description)
	if !ok || mark.Owner != m.cfg.Owner || mark.Provider != m.cfg.Provider || mark.Key != key {
		return false
	}

	for _, k := range kinds {
		if mark.Kind == k {
			return true
		}
	}

	return false
}

// Planned tells whether something may have been made for the spec.
func Planned(spec *specs.InstanceSpec) bool { return spec.GetPlan().GetProjectId() != "" }

// pause is how long to wait after the attempt of the given number: doubling up
// to two minutes. It is computed again from the stored count at each look, so
// it has no random part.
func pause(count uint32) time.Duration {
	d := 5 * time.Second
	for range min(count, 8) {
		if d *= 2; d >= 2*time.Minute {
			return 2 * time.Minute
		}
	}

	return d
}

// Creates is how many places for creating instances are taken and how many there
// are, and how many requests wait for one.
func (m *Machines) Creates() (taken, limit, waiting int) { return m.creates.Load() }
