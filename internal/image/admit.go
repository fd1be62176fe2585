package image

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

const (
	// quotaEvery is how often the silo's quota is looked at while anybody waits
	// for it, once for all who do.
	quotaEvery = 15 * time.Second
	// quotaFresh is how old a look may be that lets an upload begin.
	quotaFresh = 2 * time.Second
)

// quota is what the last look at the silo's storage quota said. Whoever holds
// Manager.admitting may use it.
type quota struct {
	at             time.Time
	free, capacity uint64 // bytes
	known          bool
	failing        bool
}

// errNoRoom ends a try whose size was not known before: the quota has no room
// for it, and the next try waits for some before it asks the factory again.
type errNoRoom struct{ *shortage }

func (errNoRoom) Error() string { return "there is no room for the upload" }

// shortage is a quota that has no room for an upload, in bytes.
type shortage struct{ need, free, capacity uint64 }

// admit waits until the upload may begin: until fewer run, and until the quota
// has room for it as far as its size is known. Who waits holds nothing, neither
// memory nor an upload's place.
func (m *Manager) admit(ctx context.Context, j *job) (release func(), err error) {
	for {
		if j.info().Phase != PhaseQuota {
			j.enter(PhaseQueued)
		}

		select {
		case m.uploads <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}

		short, err := m.room(ctx, j, m.sizeOf(j.identity))
		if err == nil && short == nil {
			return func() { <-m.uploads }, nil
		}

		<-m.uploads

		if err != nil {
			return nil, err
		}

		m.lacks(j, short)

		if err := pause(ctx, quotaEvery); err != nil {
			return nil, err
		}
	}
}

// lacks notes that a job waits for quota, and logs it when that begins.
func (m *Manager) lacks(j *job, short *shortage) {
	j.mu.Lock()
	began := j.phase != PhaseQuota
	j.short = short

	if began {
		j.phase, j.since = PhaseQuota, time.Now()
	}
	j.mu.Unlock()

	if began {
		m.imageLog(j.identity).Info("image upload waits for storage quota", zap.Uint64("need_bytes", short.need),
			zap.Uint64("free_bytes", short.free), zap.Uint64("capacity_bytes", short.capacity))
	}
}

func (m *Manager) sizeOf(id naming.ImageIdentity) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.sizes[id.Key()]
}

// room lets the job begin, or says what the quota lacks. A job whose size is not
// known yet begins, and is asked about again when it is. The look is only
// advice: others use the same quota, and the rack has the last word.
func (m *Manager) room(ctx context.Context, j *job, size uint64) (*shortage, error) {
	select {
	case m.admitting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}

	defer func() { <-m.admitting }()

	var need uint64

	if size > 0 {
		need = 2 * diskSize(size)

		if short := m.shortOf(ctx, j, need); short != nil {
			return short, nil
		}
	}

	j.claim(need)

	return nil, nil //nolint:nilnil // nothing is short
}

// shortOf compares the need with what is free, less what the uploads that run
// will still take of it. The caller holds admitting.
func (m *Manager) shortOf(ctx context.Context, j *job, need uint64) *shortage {
	for range 2 {
		if age := time.Since(m.quota.at); m.quota.at.IsZero() || age >= quotaEvery {
			m.lookAtQuota(ctx)
		}

		q := m.quota
		if !q.known {
			return nil
		}

		free := q.free - min(q.free, m.promised(j))

		if free < need {
			return &shortage{need: need, free: free, capacity: q.capacity}
		}

		if time.Since(q.at) < quotaFresh {
			// Whatever begins now makes the figure old.
			m.quota.at = time.Time{}

			return nil
		}

		m.quota.at = time.Time{}
	}

	return nil
}

// promised is what the uploads that run will still take: a disk and a snapshot,
// each of the image's size.
func (m *Manager) promised(except *job) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()

	var sum uint64

	for _, j := range m.jobs {
		if j != except {
			sum += j.promise()
		}
	}

	return sum
}

func (m *Manager) lookAtQuota(ctx context.Context) {
	u, err := m.cfg.Rack.Utilization(ctx)

	if failing := err != nil; failing != m.quota.failing && ctx.Err() == nil {
		m.quota.failing = failing

		if failing {
			m.cfg.Log.Info("the silo's quota can not be read: uploads begin without a look at it", zap.Error(err))
		}
	}

	m.quota.at, m.quota.known = time.Now(), err == nil
	if err != nil {
		return
	}

	m.quota.capacity = uint64(u.Capacity.Storage)
	m.quota.free = m.quota.capacity - min(m.quota.capacity, uint64(u.Provisioned.Storage))
}

// claim begins the job's upload.
func (j *job) claim(need uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if j.phase != PhaseOpening {
		j.phase, j.since = PhaseOpening, time.Now()
	}

	j.need, j.short = need, nil
}

// promise is what the job's upload will still take of the quota.
func (j *job) promise() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()

	switch j.phase {
	case PhaseOpening:
		return j.need
	case PhaseUploading, PhaseSealing:
		return j.need / 2 // the disk is there, its snapshot is not
	case PhaseLooking, PhaseQueued, PhaseQuota, PhasePublishing, PhaseFailed:
	}

	return 0
}

// text is one line for people.
func (s *shortage) text(talos string) string {
	return fmt.Sprintf("waiting for storage quota: uploading the Talos %s image takes %s, twice its size, and %s of %s are free in the silo; "+
		"free some or ask for a larger quota", talos, gibs(s.need), gibs(s.free), gibs(s.capacity))
}

// gibs is whole where it can be.
func gibs(n uint64) string {
	if n%gib == 0 {
		return fmt.Sprintf("%d GiB", n/gib)
	}

	return fmt.Sprintf("%.1f GiB", float64(n)/gib)
}
