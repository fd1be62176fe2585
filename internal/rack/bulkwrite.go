package rack

import (
	"context"
	"fmt"
	"net/http"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// MaxChunk is the largest bulk write that the rack takes, in raw bytes.
const MaxChunk = 512 << 10

// StartBulkWrite moves a disk from import_ready to importing_from_bulk_writes.
// A second call fails.
func (c *Client) StartBulkWrite(ctx context.Context, diskID string) error {
	return fill(ctx, c, "starting the import", sagaDeadline, func(ctx context.Context) error {
		return c.api.DiskBulkWriteImportStart(ctx, oxide.DiskBulkWriteImportStartParams{Disk: oxide.NameOrId(diskID)})
	})
}

// BulkWrite writes chunk at offset, both in bytes and multiples of the disk's
// block size. Writing the same bytes again is harmless. The chunk may be used
// for something else as soon as the call returns.
func (c *Client) BulkWrite(ctx context.Context, diskID string, offset uint64, chunk []byte) error {
	if len(chunk) > MaxChunk {
		return &Error{
			Op: "writing a chunk", Class: ClassInvalid,
			Message: fmt.Sprintf("a chunk of %d bytes is over the limit of %d", len(chunk), MaxChunk),
		}
	}

	return fill(ctx, c, "writing a chunk", chunkDeadline, func(ctx context.Context) error {
		write := newBulkWrite(offset, chunk)
		defer write.end()

		return raw(ctx, c.bulk, oxide.Request{
			Method: http.MethodPost,
			Path:   "/v1/disks/{{.disk}}/bulk-write",
			Params: map[string]string{"disk": diskID},
			Body:   write.body(),
		})
	})
}

// StopBulkWrite moves a disk from importing_from_bulk_writes to import_ready.
func (c *Client) StopBulkWrite(ctx context.Context, diskID string) error {
	return fill(ctx, c, "stopping the import", sagaDeadline, func(ctx context.Context) error {
		return c.api.DiskBulkWriteImportStop(ctx, oxide.DiskBulkWriteImportStopParams{Disk: oxide.NameOrId(diskID)})
	})
}

// FinalizeImport ends an import. With a snapshot name it also makes the
// snapshot, which is found by that name afterwards.
func (c *Client) FinalizeImport(ctx context.Context, diskID, snapshotName string) error {
	return changeOnly(ctx, c, "finalizing the import", func(ctx context.Context) error {
		return c.api.DiskFinalizeImport(ctx, oxide.DiskFinalizeImportParams{
			Disk: oxide.NameOrId(diskID),
			Body: &oxide.FinalizeDisk{SnapshotName: oxide.Name(snapshotName)},
		})
	})
}
