package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	firstBackoff = 5 * time.Second
	maxBackoff   = 5 * time.Minute
	// lookAgainAfter is how old a look for the image may be when its upload begins.
	lookAgainAfter = 5 * time.Second
)

// Phase is what a job does; the package comment draws how they follow.
type Phase string

// The phases.
const (
	PhaseLooking    Phase = "looking"    // for the image in the rack
	PhaseQueued     Phase = "queued"     // until fewer uploads run
	PhaseQuota      Phase = "quota"      // until the silo's storage quota has room
	PhaseOpening    Phase = "opening"    // until the factory sends
	PhaseUploading  Phase = "uploading"  // into the scratch disk
	PhaseSealing    Phase = "sealing"    // finalizing the disk into a snapshot
	PhasePublishing Phase = "publishing" // making the image and promoting it
	PhaseFailed     Phase = "failed"     // until the next try
)

// JobInfo describes a job at one moment.
type JobInfo struct {
	Identity naming.ImageIdentity
	// ProjectID is the place of the image, empty for the silo.
	ProjectID string
	Phase     Phase
	// Done and Total are raw bytes; Total is 0 until it is known.
	Done, Total uint64
	// Rate is raw bytes in a second, Left what the rest takes at that; 0 if not
	// known.
	Rate float64
	Left time.Duration
	// Waits is the line for people: what is awaited, and why.
	Waits string
	// Since is when Phase began.
	Since time.Time
	// Attempts counts the tries begun.
	Attempts int
	// LastError is the one-line cause of the last failure, kept until the end.
	LastError string
	// NextTry is set in PhaseFailed.
	NextTry time.Time
}

// job brings one image into one place.
type job struct {
	identity naming.ImageIdentity
	key      key
	cancel   context.CancelCauseFunc
	looked   *lookup // only the job's own goroutine reads it after the start

	mu       sync.Mutex
	projects []string // that wait for it, in the order of asking
	must     bool     // somebody can use it only in the silo
	room     uint64   // the largest disk wanted, in bytes; anySize without one
	asked    time.Time
	phase    Phase
	since    time.Time // when phase began
	done     uint64
	total    uint64
	need     uint64    // of quota, in bytes, once the size is known
	short    *shortage // in PhaseQuota
	pace     pace
	attempts int
	backoff  time.Duration
	err      error
	nextTry  time.Time
	stumbles string // why the newest write is tried again; empty while all goes well
	unknown  bool   // the factory does not know the schematic, and nobody was told yet
	shown    shown
}

func newJob(id naming.ImageIdentity, k key, cancel context.CancelCauseFunc) *job {
	return &job{identity: id, key: k, cancel: cancel, phase: PhaseLooking, since: time.Now()}
}

// ask notes that a project waits for the job. A project that is new to the
// job is only added when told to: it may have the image already.
func (j *job) ask(projectID string, add, must bool, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()

	if must && !j.must {
		if !add {
			return false
		}

		j.must = true
	}

	if !slices.Contains(j.projects, projectID) {
		if !add {
			return false
		}

		j.projects = append(j.projects, projectID)
	}

	j.asked = now

	return true
}

func (j *job) lastAsked() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.asked
}

func (j *job) needsSilo() bool {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.must
}

func (j *job) waiting() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.Clone(j.projects)
}

// enter begins a phase.
func (j *job) enter(p Phase) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.phase, j.since = p, time.Now()
}

// begin starts another try.
func (j *job) begin() {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.phase, j.since = PhaseLooking, time.Now()
	j.attempts++
	j.done, j.total, j.unknown, j.stumbles = 0, 0, false, ""
	j.need, j.short = 0, nil
}

// expect sets how many bytes will be uploaded.
func (j *job) expect(total uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.phase, j.since = PhaseUploading, time.Now()
	j.done, j.total = 0, total
	j.pace = pace{at: j.since}
}

func (j *job) progress(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.done = min(j.done+uint64(max(n, 0)), j.total)
	j.pace.note(j.done, time.Now())
	j.stumbles = ""
}

// stumble notes a write that is tried again, until one goes well.
func (j *job) stumble(err error, try int) {
	j.mu.Lock()
	defer j.mu.Unlock()

	// One is nothing to speak of.
	if try > 1 {
		j.stumbles = fmt.Sprintf("%s (try %d)", rack.Reason(err), try)
	}
}

// fail notes why a try failed and when the next one is due: the backoff
// doubles, and a factory that named a time is not asked before it.
func (j *job) fail(err error, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.backoff = min(max(2*j.backoff, firstBackoff), maxBackoff)
	c := causeOf(err)

	delay := max(j.backoff, c.retryAfter)
	if c.mend {
		delay = maxBackoff
	}

	j.phase, j.since = PhaseFailed, now
	j.err, j.nextTry, j.unknown = err, now.Add(delay), c.schematicUnknown
}

// due is how long to wait for the next try.
func (j *job) due(now time.Time) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.nextTry.Sub(now)
}

func (j *job) info() JobInfo {
	j.mu.Lock()
	defer j.mu.Unlock()

	i := JobInfo{
		Identity: j.identity, ProjectID: j.key.place, Phase: j.phase,
		Done: j.done, Total: j.total, Attempts: j.attempts, Waits: clip(j.text(time.Now()), maxReason), Since: j.since,
	}

	if j.phase == PhaseUploading {
		i.Rate, i.Left = j.pace.rate, j.left()
	}

	if j.err != nil {
		i.LastError = clip(j.err.Error(), maxReason)
	}

	if j.phase == PhaseFailed {
		i.NextTry = j.nextTry
	}

	return i
}

// work tries until the image is there, or ctx ends.
func (m *Manager) work(ctx context.Context, j *job) {
	defer m.drop(j)
	defer j.cancel(nil)

	log := m.imageLog(j.identity)

	for {
		if wait := j.due(time.Now()); wait > 0 && pause(ctx, wait) != nil {
			return
		}

		j.begin()

		// An abandoned job of the same image may still be ending; two imports of
		// one image into one place never overlap.
		_, err, _ := m.imports.Do(j.key.image+"/"+j.key.place, func() (any, error) {
			return nil, m.attempt(ctx, j)
		})

		switch {
		case ctx.Err() != nil:
			log.Info("image import given up", zap.String("cause", fmt.Sprint(context.Cause(ctx))))

			return
		case err == nil:
			return
		case errors.Is(err, errAbandoned):
			continue
		case errors.Is(err, errNobodyFits):
			// Who asks again is told the size; a larger disk makes a new job.
			log.Info("image not uploaded", zap.Error(err))

			return
		}

		j.fail(err, time.Now())
		m.cfg.Meter.Retry("image_import", classOf(err))
		log.Warn("image import failed", zap.Error(err), zap.Duration("retry_in", j.due(time.Now()).Round(time.Millisecond)))
	}
}

// drop removes a job that has ended, unless another one has its place.
func (m *Manager) drop(j *job) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.jobs[j.key] == j {
		delete(m.jobs, j.key)
	}
}

// attempt finds the image or imports it for the first project that lacks it.
// It also ends well when the place has changed meanwhile: whoever still lacks
// the image asks again and gets a job for the new place.
func (m *Manager) attempt(ctx context.Context, j *job) error {
	l := j.looked
	j.looked = nil

	projects := j.waiting()

	if l == nil {
		var err error
		if l, err = m.look(ctx, j.identity, projects, m.aimOf(j)); err != nil {
			return err
		}
	}

	for _, img := range l.unpromoted {
		// An earlier process ended between making the image and promoting it.
		if err := m.settleIn(j, img.ProjectId, m.promote(ctx, j.identity, img, false)); err != nil {
			return err
		}
	}

	if err := context.Cause(ctx); err != nil {
		return err
	}

	projectID, lacking := m.firstLacking(j, projects)
	if !lacking || j.key.place == "" && !m.aimOf(j).silo {
		return nil
	}

	img, err := m.bring(ctx, j, projectID, l)
	if err != nil {
		return err
	}

	return m.settleIn(j, projectID, img)
}

// bring imports the image when there is room for that. After a wait it looks
// first: another process may have brought it meanwhile.
func (m *Manager) bring(ctx context.Context, j *job, projectID string, l *lookup) (oxide.Image, error) {
	for {
		start := time.Now()

		release, err := m.admit(ctx, j)
		if err != nil {
			return oxide.Image{}, err
		}

		if time.Since(start) > lookAgainAfter {
			img, found, err := m.broughtMeanwhile(ctx, j, projectID)
			if found || err != nil {
				release()

				return img, err
			}
		}

		img, err := m.importImage(ctx, j, projectID, l)

		release()

		short, again := errors.AsType[errNoRoom](err)
		if !again {
			return img, err
		}

		m.lacks(j, short.shortage)
	}
}

// broughtMeanwhile looks for the image in the places where one that another
// process has brought can be used.
func (m *Manager) broughtMeanwhile(ctx context.Context, j *job, projectID string) (oxide.Image, bool, error) {
	to := m.aimOf(j)

	silo, err := m.listSilo(ctx, j.identity, to)
	if err != nil {
		return oxide.Image{}, false, err
	}

	if img, ok := (&lookup{taken: map[string]bool{}}).match(silo, j.identity); ok {
		return img, true, nil
	}

	img, ok, err := m.findIn(ctx, j.identity, projectID)
	if err != nil || !ok {
		return oxide.Image{}, false, err
	}

	switch {
	case !to.silo, m.siloHidden() && !to.must:
		return img, true, nil
	case m.ours(img.Description, naming.KindImage):
		return m.promote(ctx, j.identity, img, false), true, nil
	default:
		return img, !to.must, nil
	}
}

// settleIn remembers the image that an attempt came to. One that was to be in
// the silo and is not is of use to those who do not insist on that.
func (m *Manager) settleIn(j *job, projectID string, img oxide.Image) error {
	m.remember(j.identity, projectID, img)

	switch {
	case !j.needsSilo() || img.ProjectId == "":
		return nil
	case m.silo():
		return errors.New("the image waits in its project until it can be promoted to the silo")
	default:
		return refusedSilo(j.identity)
	}
}

// firstLacking is the first project whose askers do not have the image where
// they can use it.
func (m *Manager) firstLacking(j *job, projects []string) (string, bool) {
	w := Want{Identity: j.identity}
	if j.needsSilo() {
		w.Scope = ScopeSilo
	} else if m.cfg.Scope == ScopeSilo {
		w.Scope = ScopeProject
	}

	for _, p := range projects {
		w.ProjectID = p

		if _, ok := m.find(w); !ok {
			return p, true
		}
	}

	return "", false
}
