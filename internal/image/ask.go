package image

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// lookFor bounds how long Ask waits for the lists of images; they go on
// without it.
const lookFor = 10 * time.Second

// Ask answers whether the image can be used in the project, and otherwise sees
// to it that it will. It never waits for an import: the first question about an
// image lists what the rack has, for ten seconds at most, and the rest only
// look at the job.
//
// The error is a *MendError, with the status filled in too, or that of ctx.
func (m *Manager) Ask(ctx context.Context, w Want) (Status, error) {
	if m.isLeaving(w.Identity) {
		return Status{Reason: "an unused image is just being removed, and then made again", RetryIn: minRetry}, nil
	}

	if f, ok := m.find(w); ok {
		return f.status(w)
	}

	if err := m.checkSize(w); err != nil {
		return Status{RetryIn: holdFor}, err
	}

	if j := m.join(w); j != nil {
		return j.status(time.Now())
	}

	j, err := m.lookShortly(ctx, w)
	if err != nil {
		return Status{}, fmt.Errorf("asking for an image: %w", err)
	}

	if f, ok := m.find(w); ok {
		return f.status(w)
	}

	if j == nil {
		return Status{Reason: "waiting for the image manager to start", RetryIn: time.Second}, nil
	}

	return j.status(time.Now())
}

// status answers for an image that is there.
func (f found) status(w Want) (Status, error) {
	return Status{Ready: true, ImageID: f.id, SizeBytes: f.size}, w.fits(f.size)
}

// find reads the memory of images found, those of the silo first.
func (m *Manager) find(w Want) (found, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, place := range m.useful(w) {
		if f, ok := m.known[key{w.Identity.Key(), place}]; ok {
			m.handed[f.id] = time.Now()

			return f, true
		}
	}

	return found{}, false
}

// lookShortly looks for the image, once for all who ask at the same time, and
// sees to it that there is a job if it is not there. The job is nil if the
// image was found, or if nothing can be done now.
func (m *Manager) lookShortly(ctx context.Context, w Want) (*job, error) {
	what := strings.Join([]string{w.Identity.Key(), w.ProjectID, string(m.scope(w))}, "/")
	ch := m.looks.DoChan(what, func() (any, error) { //nolint:contextcheck // one look serves all who ask, so it has Run's context
		return m.lookAndStart(w), nil
	})

	select {
	case r := <-ch:
		j, _ := r.Val.(*job)

		return j, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(lookFor):
		// The rack takes its time; the job looks by itself.
		return m.start(w, nil, nil), nil //nolint:contextcheck // a job outlives its asker
	}
}

// lookAndStart looks for the image and starts a job for what is not there. The
// context is Run's, as one look serves all who ask.
func (m *Manager) lookAndStart(w Want) *job {
	ctx := m.enter()
	if ctx == nil {
		return nil
	}
	defer m.working.Done()

	// Another look may have ended just before this one began.
	if _, ok := m.find(w); ok {
		return nil
	}

	if j := m.join(w); j != nil {
		return j
	}

	l, err := m.look(ctx, w.Identity, []string{w.ProjectID}, m.aim(w))
	if _, ok := m.find(w); ok {
		return nil
	}

	return m.start(w, l, err)
}

// join adds the project to those that wait for a running job.
func (m *Manager) join(w Want) *job {
	m.mu.Lock()
	defer m.mu.Unlock()

	j := m.jobs[key{w.Identity.Key(), m.place(w)}]
	if j == nil || !j.ask(w.ProjectID, false, m.scope(w) == ScopeSilo, time.Now()) {
		return nil
	}

	j.widen(w.DiskBytes)

	return j
}

// start makes a job, or joins the one that another asker has just made. What
// looking has found, or how it failed, spares the job its own first look.
func (m *Manager) start(w Want, l *lookup, err error) *job {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.ctx == nil || m.closed {
		return nil
	}

	k, must := key{w.Identity.Key(), m.place(w)}, m.scope(w) == ScopeSilo

	j := m.jobs[k]
	if j != nil {
		j.ask(w.ProjectID, true, must, time.Now())
		j.widen(w.DiskBytes)

		return j
	}

	ctx, cancel := context.WithCancelCause(m.ctx)
	j = newJob(w.Identity, k, cancel)
	j.ask(w.ProjectID, true, must, time.Now())
	j.widen(w.DiskBytes)

	j.looked = l

	if err != nil {
		j.fail(err, time.Now())
	}

	m.jobs[k] = j

	m.working.Go(func() { m.work(ctx, j) })

	return j
}
