// Package lifetime removes the images of ours that nothing uses any more.
//
// It takes a look, judges it, writes down what is in use, and removes what two
// looks in a row have judged the same:
//
//	look: what Omni wants, and then the rack, completely ─ or nothing is concluded
//	  │
//	  ▼
//	not ours                                              never touched
//	used: by a disk, a plan, a request, an upload         last use written down
//	used within the time to keep                          kept
//	among the newest of its place                         kept
//	in the silo, unless told                              kept
//	none of these, twice ─ another look ─ the same still  removed
//
// # Last use
//
// When an image was last used is kept in Omni, one resource per image, so that a
// restart or another replica goes on from there. An image without one is taken
// as used at the first look at it. It is written before anything is removed, and
// goes when a complete look no longer shows the image.
//
// # Races
//
// A request that comes while its image is being removed waits for that and has
// it made again: the image manager hands it out no more from before the last
// look. What another process has just begun is in that look, by its plan, by its
// upload's record or by its scratch. Whoever slips through all the same finds the
// image gone when its disk is to be made, and has it made again.
package lifetime

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Rack is what is asked of the rack. Lists are complete or fail.
type Rack interface {
	ListProjects(ctx context.Context) ([]oxide.Project, error)
	ViewProject(ctx context.Context, nameOrID string) (*oxide.Project, error)
	ListImages(ctx context.Context, projectID string) ([]oxide.Image, error)
	ListDisks(ctx context.Context, projectID string) ([]oxide.Disk, error)
	DeleteImage(ctx context.Context, id string) error
}

// Omni is what is asked of Omni. Lists are complete or fail.
type Omni interface {
	// Wants are what all requests and stored plans want.
	Wants(ctx context.Context) ([]Want, error)
	// Places are the names or IDs of the projects that Omni knows of.
	Places(ctx context.Context) ([]string, error)
	// ImportRuns are the records of all processes that bring images.
	ImportRuns(ctx context.Context) ([]image.RunInfo, error)
	// ImageUses are the records of last use.
	ImageUses(ctx context.Context) ([]Use, error)
	// RecordUse writes one, over an older one. Who loses a race against another
	// process that does the same has nothing to do.
	RecordUse(ctx context.Context, u Use) error
	// ForgetUse removes one.
	ForgetUse(ctx context.Context, imageID string) error
}

// Want is what a request, or the plan that is stored for one, wants.
type Want struct {
	RequestID string
	// ImageID is known when the machine has its image, Identity when it has a plan.
	ImageID  string
	Identity *naming.ImageIdentity
	// Talos is the version of a request without a plan. It may come to want any
	// image of that version. If it can not be read it is empty, and any image may
	// be meant.
	Talos string
}

// Use is when an image was last seen in use.
type Use struct {
	ImageID   string
	ProjectID string // empty for the silo
	At        time.Time
}

// Images hands images out; *image.Manager.
type Images interface {
	Withdraw(mark naming.Mark, imageID string, after time.Time) (done func(), ok bool)
}

// Forever keeps images however long nothing uses them.
const Forever = time.Duration(-1)

// Keep says what is kept although nothing uses it.
type Keep struct {
	// For is how long after its last use, or Forever.
	For time.Duration
	// Newest is how many of ours each place keeps.
	Newest int
	// Silo says that images of the silo may be removed too.
	Silo bool
}

// Config is what a Lifetime is made of.
type Config struct {
	Rack Rack
	Omni Omni
	// Images may be nil where nothing is handed out.
	Images Images

	// Owner and Provider stand in the marks that are ours.
	Owner, Provider string
	// Projects are looked at besides those that Omni leads to, when the token may
	// not list the silo's. Names or IDs.
	Projects []string
	Keep     Keep
	// DryRun only logs what would be removed.
	DryRun bool

	Log *zap.Logger
}

// The time between two looks follows from that for which images are kept.
const (
	maxEvery = time.Hour
	minEvery = 250 * time.Millisecond
	// afterFailure is when a look that failed is taken again.
	afterFailure = time.Minute
)

// Lifetime looks and removes. Its methods must not be called side by side.
type Lifetime struct {
	cfg Config

	// doomed are the images that the last look would have removed, by ID.
	doomed map[string]bool
	told   map[string]string // what was logged last of what is not removed, by ID
	fails  bool
}

// New makes a Lifetime. Nothing happens before Run, Find or Remove.
func New(cfg Config) *Lifetime {
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}

	return &Lifetime{cfg: cfg, doomed: map[string]bool{}, told: map[string]string{}}
}

// Run looks again and again until ctx ends. It may be called again after that.
func (l *Lifetime) Run(ctx context.Context) {
	// What was seen before somebody else may have worked here proves nothing.
	l.doomed = map[string]bool{}

	for {
		next := l.every()

		err := l.Round(ctx)
		if ctx.Err() != nil {
			return
		}

		if err != nil {
			next = min(next, afterFailure)
		}

		l.note(err)

		t := time.NewTimer(next)
		select {
		case <-ctx.Done():
			t.Stop()

			return
		case <-t.C:
		}
	}
}

func (l *Lifetime) every() time.Duration {
	if l.cfg.Keep.For == Forever {
		return maxEvery
	}

	return max(min(maxEvery, l.cfg.Keep.For/20), minEvery)
}

// note logs when looking begins to fail and when it works again: a rack may be
// away for an hour.
func (l *Lifetime) note(err error) {
	if l.fails == (err != nil) {
		return
	}

	l.fails = err != nil

	if l.fails {
		l.cfg.Log.Info("unused images can not be looked for", zap.Error(err))
	} else {
		l.cfg.Log.Info("unused images are looked for again")
	}
}

// Round takes one look and acts on it.
func (l *Lifetime) Round(ctx context.Context) error {
	began := time.Now()

	seen, err := l.look(ctx)
	if err != nil {
		return err
	}

	images := l.judge(seen, began)

	if err := l.record(ctx, seen, images, began); err != nil {
		return err
	}

	before := l.doomed
	l.doomed = map[string]bool{}

	for _, i := range images {
		if i.Kept != "" {
			delete(l.told, i.ID)

			continue
		}

		l.doomed[i.ID] = true

		switch {
		case !before[i.ID] || ctx.Err() != nil:
		case l.cfg.DryRun:
			l.tell(i, "an unused image would be removed, if this were no dry run", "")
		default:
			if err := l.retire(ctx, i, began); err != nil {
				l.tell(i, "an unused image is still there", err.Error())
			}
		}
	}

	return nil
}

// record writes down what is in use, and forgets what is gone.
func (l *Lifetime) record(ctx context.Context, seen *look, images []Image, now time.Time) error {
	for _, i := range images {
		use, recorded := seen.uses[i.ID]

		// A time to come is that of a clock that was wrong.
		if recorded && len(i.UsedBy) == 0 && !use.At.After(now) {
			continue
		}

		if recorded && use.ProjectID == i.ProjectID && !use.At.After(now) && now.Sub(use.At) < l.every()/2 {
			continue
		}

		if err := l.cfg.Omni.RecordUse(ctx, Use{ImageID: i.ID, ProjectID: i.ProjectID, At: now}); err != nil {
			return err
		}
	}

	for id, u := range seen.uses {
		if !seen.gone(u) {
			continue
		}

		if err := l.cfg.Omni.ForgetUse(ctx, id); err != nil {
			return err
		}
	}

	return nil
}

// tell logs why something is not done, once and again when that changes.
func (l *Lifetime) tell(i Image, text, why string) {
	if before, ok := l.told[i.ID]; ok && before == text {
		return
	}

	l.told[i.ID] = text

	fields := i.fields()
	if why != "" {
		fields = append(fields, zap.String("why", why))
	}

	l.cfg.Log.Info(text, fields...)
}
