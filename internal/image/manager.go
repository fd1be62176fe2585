package image

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

const (
	// shutdownGrace bounds how long Run undoes scratch after its context ended.
	shutdownGrace = 10 * time.Second
	reapEvery     = 30 * time.Second
)

var errAbandoned = errors.New("nobody wants the image any more")

// key is an image in a place: a project, or the silo if empty.
type key struct {
	image string
	place string
}

// found is an image that can be used.
type found struct {
	id   string
	size uint64
}

// Manager finds and imports images. Its methods are safe for concurrent use.
type Manager struct {
	cfg Config

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // jobs outlive the call that starts them; this is Run's context
	undoCtx context.Context //nolint:containedctx // outlives ctx by the grace of a shutdown
	closed  bool
	known   map[key]found
	sizes   map[string]uint64 // of images by key, in bytes, once known
	jobs    map[key]*job
	places  places
	doubted map[string]bool      // IDs of images that somebody could not use
	handed  map[string]time.Time // by ID of the image: when somebody was last told to use it
	leaving map[string]bool      // keys of images that are just being removed
	scratch map[*scratch]struct{}

	working sync.WaitGroup // jobs and look-ups; Add only under mu while not closed
	undoing sync.WaitGroup // undos; Add only while working or the loops still run

	looks, imports singleflight.Group

	// Semaphores are channels so that waiting for one obeys a context.
	uploads   chan struct{}
	deleting  chan struct{}
	admitting chan struct{}

	quota quota

	run      run
	suspects suspects
}

// New makes a manager. Nothing happens before Run.
func New(cfg Config) *Manager {
	cfg.defaults()

	return &Manager{
		cfg:       cfg,
		known:     map[key]found{},
		sizes:     map[string]uint64{},
		jobs:      map[key]*job{},
		scratch:   map[*scratch]struct{}{},
		doubted:   map[string]bool{},
		handed:    map[string]time.Time{},
		leaving:   map[string]bool{},
		uploads:   make(chan struct{}, cfg.Uploads),
		deleting:  make(chan struct{}, 1),
		admitting: make(chan struct{}, 1),
		run:       run{lock: make(chan struct{}, 1), projects: map[string]bool{}},
	}
}

// Run does the work until ctx ends, then cancels all jobs, undoes their
// scratch for at most ten seconds, and not beyond Config.End, and returns when every goroutine has ended.
// What is left is undone by the sweep of a later process. It may be called
// once.
func (m *Manager) Run(ctx context.Context) error {
	undoCtx, cancelUndo := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelUndo()

	m.mu.Lock()
	if m.ctx != nil {
		m.mu.Unlock()

		return errors.New("the image manager runs only once")
	}

	m.ctx, m.undoCtx = ctx, undoCtx
	m.mu.Unlock()

	var loops sync.WaitGroup

	loops.Go(func() { m.renewLoop(ctx) })
	loops.Go(func() { m.sweepLoop(ctx) })
	loops.Go(func() { every(ctx, reapEvery, func() { m.reap(time.Now()) }) })

	<-ctx.Done()

	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()

	loops.Wait()
	m.working.Wait()

	stop := time.AfterFunc(shutdownGrace, cancelUndo)
	defer stop.Stop()

	if m.cfg.End != nil {
		defer context.AfterFunc(m.cfg.End, cancelUndo)() //nolint:contextcheck // the end of the whole process
	}

	m.undoing.Wait()
	m.endRun(undoCtx)

	return nil
}

// Forget drops what is known of an image that turned out to be gone.
func (m *Manager) Forget(imageID string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.doubted[imageID] = true

	for k, f := range m.known {
		if f.id == imageID {
			delete(m.known, k)
		}
	}
}

// Jobs describes all jobs, ordered by image name and place.
func (m *Manager) Jobs() []JobInfo {
	m.mu.Lock()

	infos := make([]JobInfo, 0, len(m.jobs))
	for _, j := range m.jobs {
		infos = append(infos, j.info())
	}

	m.mu.Unlock()

	slices.SortFunc(infos, func(a, b JobInfo) int {
		return strings.Compare(naming.Image(a.Identity)+a.ProjectID, naming.Image(b.Identity)+b.ProjectID)
	})

	return infos
}

// remember notes an image in the place where it is, the silo or the project.
func (m *Manager) remember(id naming.ImageIdentity, projectID string, img oxide.Image) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if img.ProjectId == "" {
		projectID = ""
	}

	m.known[key{id.Key(), projectID}] = found{id: img.Id, size: uint64(img.Size)}
}

// enter counts one more piece of work that Run waits for. It answers nil when
// Run has not begun or is ending.
func (m *Manager) enter() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.ctx == nil || m.closed {
		return nil
	}

	m.working.Add(1)

	return m.ctx
}

// reap cancels the jobs that nobody wants any more.
func (m *Manager) reap(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for k, j := range m.jobs {
		if now.Sub(j.lastAsked()) >= m.cfg.Abandon {
			delete(m.jobs, k)
			j.cancel(errAbandoned)
		}
	}
}

// every calls f at the interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	t := time.NewTicker(interval)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// pause waits, or answers why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
