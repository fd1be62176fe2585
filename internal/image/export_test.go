package image

import (
	"context"
	"io"
)

// DiskSize is the size of the scratch disk for an image.
var DiskSize = diskSize

// SnapshotName is the n-th name for a snapshot of a disk.
func (m *Manager) SnapshotName(diskID string, n int) string { return m.snapshotName(diskID, n) }

// Copy runs writers over a stream.
func Copy(ctx context.Context, cancel context.CancelCauseFunc, rack chunkWriter, count, block int, limit uint64, r io.Reader) (uint64, error) {
	head, err := fill(r, make([]byte, chunkSize))
	if err != nil {
		return 0, err
	}

	w := writers{rack: rack, disk: "disk", most: count, block: block, limit: limit, progress: func(int) {}, meter: unmetered{}}

	done, err := w.copy(ctx, cancel, head, r)

	return done.length, err
}
