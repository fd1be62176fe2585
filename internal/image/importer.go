package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const gib = 1 << 30

// importer is one try to import an image into a project.
type importer struct {
	m       *Manager
	job     *job
	scratch *scratch
	log     *zap.Logger
}

// head is the beginning of a stream and what it tells about the whole.
type head struct {
	filled // one chunk, or the whole image if that is less

	size  uint64 // of the image in bytes
	block int    // of the disk in bytes
}

// importImage brings the image from the factory into the project and, when
// that is the place, on to the silo. Nothing is made in the rack before the
// factory sends and the size is known.
func (m *Manager) importImage(ctx context.Context, j *job, projectID string, l *lookup) (img oxide.Image, err error) {
	start := time.Now()

	defer func() {
		result := "ok"
		if err != nil {
			result = "error"
		}

		m.cfg.Meter.Uploaded(result, time.Since(start))
	}()

	// A failed write ends the stream through this context, and the other way.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	defer thrifty()()

	j.enter(PhaseOpening)

	stream, err := m.cfg.Source.Open(ctx, j.identity)
	if err != nil {
		return oxide.Image{}, err
	}
	defer stream.Close() //nolint:errcheck // only read from

	h, err := readHead(stream)
	if err != nil {
		return oxide.Image{}, err
	}

	if err := m.sized(ctx, j.identity, j, h.size); err != nil {
		return oxide.Image{}, err
	}

	s, err := m.newScratch(ctx, j.identity, projectID)
	if err != nil {
		return oxide.Image{}, err
	}
	// From here on the scratch is undone, however this ends.
	defer m.startUndo(s) //nolint:contextcheck // it outlives the import

	i := &importer{m: m, job: j, scratch: s, log: m.imageLog(j.identity)}

	if err := i.createDisk(ctx, h); err != nil {
		return oxide.Image{}, err
	}

	i.log.Info("image upload started", zap.String("oxide.disk.id", s.id), zap.String("oxide.project.id", projectID),
		zap.String("file", stream.Name()), zap.Uint64("bytes", h.size))

	w, err := i.upload(ctx, cancel, h, stream)
	if err != nil {
		return oxide.Image{}, err
	}

	took := time.Since(start)

	snapshotID, err := i.seal(ctx, h)
	if err != nil {
		return oxide.Image{}, err
	}

	img, err = i.publish(ctx, snapshotID, l.taken, content{length: w.length, stream: stream.SHA256(), chunks: w.digest})
	if err != nil {
		return oxide.Image{}, err
	}

	i.log.Info("image imported", zap.String("oxide.image.id", img.Id), zap.String("oxide.image.name", string(img.Name)),
		zap.Bool("silo", img.ProjectId == ""), zap.Uint64("bytes", h.size), zap.String("sha256", stream.SHA256()),
		zap.String("chunks_sha256", w.digest), zap.Int("writes", w.writes), zap.Int("peak_writers", w.peak),
		zap.Float64("upload_seconds", took.Seconds()), zap.Float64("seconds", time.Since(start).Seconds()))

	return img, nil
}

// classOf is the class of a failure for counting.
func classOf(err error) string {
	if e, ok := errors.AsType[*rack.Error](err); ok {
		return e.Class.String()
	}

	return "other"
}

// readHead reads the first chunk. The partition table stands in the disk's
// second block, and so tells how long blocks are.
func readHead(stream Stream) (head, error) {
	first, err := fill(stream, make([]byte, chunkSize))
	if err != nil {
		return head{}, fmt.Errorf("reading the beginning of the image: %w", err)
	}

	h := head{filled: first, size: stream.Size()}

	for _, block := range []int{512, 4096} {
		if !h.zero && len(h.data) >= block+8 && bytes.Equal(h.data[block:block+8], []byte("EFI PART")) {
			h.block = block
		}
	}

	if h.block == 0 {
		return head{}, errors.New("the image has no partition table")
	}

	if h.size == 0 {
		return head{}, errors.New("the image does not tell its size")
	}

	return h, nil
}

// diskSize is the size of the scratch disk for an image: whole GiB, both in
// bytes.
func diskSize(image uint64) uint64 {
	return max((image+gib-1)/gib, 1) * gib
}

// needs explains what a full quota or a full rack means for an import.
func needs(err error, size uint64) error {
	if rack.ClassOf(err) != rack.ClassCapacity {
		return err
	}

	n := diskSize(size) / gib

	return fmt.Errorf("%d GiB must be free during the import, twice the image's %d: %w", 2*n, n, err)
}

// createDisk makes the scratch disk. When the answer is lost the disk is
// looked for by its name, which nobody else has.
func (i *importer) createDisk(ctx context.Context, h head) error {
	s := i.scratch
	mark := naming.Mark{
		Owner: i.m.cfg.Owner, Provider: i.m.cfg.Provider, Run: i.m.cfg.Run,
		Kind: naming.KindScratch, Key: i.job.identity.Key(),
	}

	disk, err := i.m.cfg.Rack.CreateDisk(ctx, s.project, oxide.DiskCreate{
		Name:        oxide.Name(s.name),
		Description: mark.Describe(fmt.Sprintf("Upload of a Talos %s image in progress.", i.job.identity.Talos)),
		Size:        oxide.ByteCount(diskSize(h.size)),
		DiskBackend: oxide.DiskBackend{Value: &oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: &oxide.DiskSourceImportingBlocks{BlockSize: oxide.BlockSize(h.block)}},
		}},
	})
	if err == nil {
		i.m.setID(s, disk.Id)

		return nil
	}

	if !rack.ClassOf(err).Unsure() {
		return needs(err, h.size)
	}

	// Whatever comes of it now, the disk may still appear.
	s.settled = time.Now().Add(settleFor)

	for delay := time.Second; delay <= 4*time.Second; delay *= 2 {
		if d, viewErr := i.m.cfg.Rack.ViewDiskByName(ctx, s.project, s.name); viewErr == nil {
			if !i.m.ours(d.Description, naming.KindScratch) {
				return fmt.Errorf("disk %s: %w", d.Id, errForeign)
			}

			i.m.setID(s, d.Id)

			return nil
		}

		if err := pause(ctx, delay); err != nil {
			return err
		}
	}

	return err
}

// upload copies the stream into the disk and closes the disk for writes.
func (i *importer) upload(ctx context.Context, cancel context.CancelCauseFunc, h head, stream Stream) (written, error) {
	id := i.scratch.id

	if err := i.advance(ctx, oxide.DiskStateStateImportReady, oxide.DiskStateStateImportingFromBulkWrites,
		func() error { return i.m.cfg.Rack.StartBulkWrite(ctx, id) }); err != nil {
		return written{}, err
	}

	i.job.expect(h.size)

	w := writers{
		rack: i.m.cfg.Rack, disk: id, most: i.m.cfg.Writers, block: h.block, limit: diskSize(h.size),
		progress: i.job.progress, meter: i.m.cfg.Meter,
		trouble: func(err error, try int) {
			i.job.stumble(err, try)
			i.m.cfg.Meter.Retry("image_write", classOf(err))
		},
	}

	done, err := w.copy(ctx, cancel, h.filled, stream)
	if err != nil {
		return written{}, err
	}

	if done.length != h.size {
		return written{}, fmt.Errorf("the image ended at byte %d of %d", done.length, h.size)
	}

	i.job.enter(PhaseSealing)

	return done, i.advance(ctx, oxide.DiskStateStateImportingFromBulkWrites, oxide.DiskStateStateImportReady,
		func() error { return i.m.cfg.Rack.StopBulkWrite(ctx, id) })
}

const (
	stepTries      = 5
	firstStepPause = time.Second
	maxStepPause   = 10 * time.Second
)

// advance makes a call that takes the disk from one state to the next. Such
// calls are refused the second time, so after an unclear answer the disk's
// state decides whether there is anything to repeat.
func (i *importer) advance(ctx context.Context, from, to oxide.DiskStateState, call func() error) error {
	delay := firstStepPause

	for try := 1; ; try++ {
		err := call()
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		if c := rack.ClassOf(err); !c.Passing() && c != rack.ClassInvalid {
			return err
		}

		disk, viewErr := i.m.cfg.Rack.ViewDisk(ctx, i.scratch.id)

		switch {
		case viewErr != nil && rack.ClassOf(viewErr) == rack.ClassGone:
			return viewErr
		case viewErr != nil:
		case disk.State.State() == to:
			return nil
		case disk.State.State() != from && disk.State.State() != oxide.DiskStateStateCreating:
			return err
		}

		if try == stepTries {
			return err
		}

		if err := pause(ctx, delay); err != nil {
			return err
		}

		delay = min(2*delay, maxStepPause)
	}
}
