package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// errNobodyFits ends a job before it has made anything: the image is larger
// than every disk that is to be made from it.
var errNobodyFits = errors.New("the image is larger than every disk wanted from it")

// fits refuses a disk that is smaller than the image. size is that of the image
// in bytes.
func (w Want) fits(size uint64) error {
	if w.DiskBytes == 0 || size <= w.DiskBytes {
		return nil
	}

	return &MendError{Reason: fmt.Sprintf("boot_disk_size: %d GiB is less than the %d GiB that the Talos %s image needs",
		w.DiskBytes/gib, diskSize(size)/gib, w.Identity.Talos)}
}

// checkSize compares the disk wanted with what is known of the image's size,
// which outlives the job that found it out.
func (m *Manager) checkSize(w Want) error {
	m.mu.Lock()
	size := m.sizes[w.Identity.Key()]
	m.mu.Unlock()

	return w.fits(size)
}

// sized notes the image's size, and ends the job if nobody who waits for it has
// a disk that is large enough, or the try if the quota has no room. An asker who
// sets no size takes any image.
func (m *Manager) sized(ctx context.Context, id naming.ImageIdentity, j *job, size uint64) error {
	m.mu.Lock()
	m.sizes[id.Key()] = size
	m.mu.Unlock()

	j.mu.Lock()
	nobody, asked := j.room != anySize && j.room < size, j.need > 0
	j.mu.Unlock()

	switch {
	case nobody:
		return errNobodyFits
	case asked:
		return nil
	}

	short, err := m.room(ctx, j, size)
	if err != nil {
		return err
	}

	if short != nil {
		return errNoRoom{short}
	}

	return nil
}

// anySize is the room of a job of which somebody wants the image of any size.
const anySize = ^uint64(0)

// widen notes the largest disk that is wanted.
func (j *job) widen(disk uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if disk == 0 {
		disk = anySize
	}

	j.room = max(j.room, disk)
}
