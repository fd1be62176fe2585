// Package image brings Talos images into the rack: it finds them, imports
// what is missing and removes what an import leaves behind.
//
// # Jobs
//
// There is one job per image and place; all who want the image ask it and
// none of them waits for it.
//
//	looking ──found──────────────────────────────────────────▶ done
//	   │ not found
//	   ▼
//	queued ─▶ opening ─▶ uploading ─▶ sealing ─▶ publishing ──▶ done
//	   │          │          │           │           │
//	   └──────────┴──────────┴─────┬─────┴───────────┘
//	                               ▼
//	            failed ──after the backoff──▶ looking
//
// queued goes by way of quota when the silo has no room for a disk and a
// snapshot of the image's size. That is known once the factory has sent the
// beginning; who waits for room has let go of it.
//
// A job that nobody has asked for in ten minutes is cancelled from whatever
// state it is in.
//
// # Places
//
// An image is found in the silo first, then in the project, wherever new ones
// are kept. A new one is made in the project that asks:
//
//	scope    promoted to the silo                 refused by the token's role
//	auto     if the token may                     kept in each project from then on
//	silo     always                               nobody can use it: a person must mend it
//	project  never
//
// auto's first refusal holds for the life of the process. An image of ours that
// waits in a project for its promotion is promoted for whoever wants it in the
// silo; that changes nothing for those who use it in the project.
//
// # Scratch
//
// An import goes through a disk and a snapshot with random names. Both are
// handed to the undo when the import ends, well or badly:
//
//	creating ───────────────────wait──▶ (look again)
//	importing_from_bulk_writes ─stop──▶ import_ready
//	import_ready ───finalize, no snapshot──▶ finalizing ─wait─▶ detached
//	detached, faulted ──delete the snapshots, then the disk──▶ gone
//	attaching, attached, detaching, maintenance ─wait─▶ (look again)
//
// The snapshots go first because the disk carries the mark: the rack writes
// the description of a snapshot made by finalize itself. Such a snapshot is
// known by the ID of its disk and by a name that only this owner derives from
// that ID.
//
// What a process could not undo before it ended is undone by another one. Each
// process is a run that renews a record of itself; the marks name the run, and
// scratch of a run that is no longer renewed is a leftover.
package image

import (
	"context"
	"io"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Want is an image that somebody needs in a project.
type Want struct {
	Identity naming.ImageIdentity
	// ProjectID is the project's UUID, not its name.
	ProjectID string
	// DiskBytes is the size of the disk to be made from it. An image that is
	// larger is refused with a *MendError, before it is uploaded for nobody. 0
	// takes any image.
	DiskBytes uint64
	// Scope is where the image is to be kept. Empty or ScopeAuto leaves it to the
	// manager's own.
	Scope Scope
}

// Status is the answer to a Want.
type Status struct {
	// Ready says that ImageID can be used in the project.
	Ready   bool
	ImageID string
	// SizeBytes is the size of the image in the rack, the least size of a disk
	// made from it.
	SizeBytes uint64
	// Reason is one line for people on what is awaited. It changes at most every
	// ten seconds or ten percent.
	Reason string
	// RetryIn is when to ask again.
	RetryIn time.Duration
	// SchematicUnknown says that the factory does not know the schematic: whoever
	// gets it registers it again. It is told to one asker for each failed try.
	SchematicUnknown bool
}

// MendError is what only a person can mend, such as a Talos version that the
// factory does not offer. The job goes on trying, slowly.
type MendError struct{ Reason string }

// Error is one line for people.
func (e *MendError) Error() string { return e.Reason }

// Rack is what is asked of the rack. Errors are classed by rack.ClassOf.
type Rack interface {
	ListImages(ctx context.Context, projectID string) ([]oxide.Image, error)
	ViewImage(ctx context.Context, id string) (*oxide.Image, error)
	CreateImage(ctx context.Context, projectID string, i oxide.ImageCreate) (*oxide.Image, error)
	PromoteImage(ctx context.Context, id string) (*oxide.Image, error)
	DeleteImage(ctx context.Context, id string) error

	CreateDisk(ctx context.Context, projectID string, d oxide.DiskCreate) (*oxide.Disk, error)
	ViewDisk(ctx context.Context, id string) (*oxide.Disk, error)
	ViewDiskByName(ctx context.Context, projectID, name string) (*oxide.Disk, error)
	ListDisks(ctx context.Context, projectID string) ([]oxide.Disk, error)
	DeleteDisk(ctx context.Context, id string) error

	StartBulkWrite(ctx context.Context, diskID string) error
	BulkWrite(ctx context.Context, diskID string, offset uint64, chunk []byte) error
	StopBulkWrite(ctx context.Context, diskID string) error
	FinalizeImport(ctx context.Context, diskID, snapshotName string) error

	ViewSnapshotByName(ctx context.Context, projectID, name string) (*oxide.Snapshot, error)
	ListSnapshots(ctx context.Context, projectID string) ([]oxide.Snapshot, error)
	DeleteSnapshot(ctx context.Context, id string) error

	// Utilization is the silo's quota and what is used of it.
	Utilization(ctx context.Context) (*oxide.Utilization, error)
}

// Source is where the bytes of an image come from.
type Source interface {
	// Open answers the raw disk. It may take as long as the factory builds.
	Open(ctx context.Context, id naming.ImageIdentity) (Stream, error)
}

// Stream is a raw disk. Read fails if the source was damaged or cut short, at
// the latest instead of io.EOF.
type Stream interface {
	io.ReadCloser
	// Size is the length of the raw disk in bytes, known once the first chunk was
	// read.
	Size() uint64
	// SHA256 is that of the compressed stream in hex, known after io.EOF.
	SHA256() string
	// Name is the file that is read.
	Name() string
}

// Runs keeps the records of living processes. Its implementation knows which
// one is ours.
type Runs interface {
	// Renew stores that our run lives, has scratch in the projects, and works at
	// the uploads.
	Renew(ctx context.Context, projectIDs []string, uploads []JobInfo) error
	// Others lists the records of all other runs, completely.
	Others(ctx context.Context) ([]RunInfo, error)
	// Forget removes the record of a run, ours or another's.
	Forget(ctx context.Context, id string) error
}

// RunInfo is the record of one process.
type RunInfo struct {
	ID         string
	Sequence   uint64 // grows with each renewal
	ProjectIDs []string
	// Uploads are those under way at the last renewal, At: as far as a JobInfo says
	// what an upload is, how far, and what it waits for.
	Uploads []JobInfo
	At      time.Time
}

// Config is what a Manager is made of.
type Config struct {
	Rack   Rack
	Source Source
	Runs   Runs
	Log    *zap.Logger

	// Owner, Provider and Run are written into every mark.
	Owner, Provider, Run string

	// Writers is the most parallel writes of one upload, 10 if zero. How many
	// there are follows from how quickly the rack takes them.
	Writers int
	// Uploads is the number of uploads at once, 4 if zero. Each holds at most
	// (Writers + 1) chunks of 512 KiB and the decoder's buffer, for Talos' images
	// 16 MiB.
	Uploads int
	// Scope is where images are kept for those who leave it to the manager,
	// ScopeAuto if empty.
	Scope Scope
	// Grace is for how long a run must not have been renewed before its scratch
	// counts as left over, 2 minutes if zero.
	Grace time.Duration
	// Abandon is for how long nobody must have asked for a job before it is
	// cancelled, 10 minutes if zero.
	Abandon time.Duration
	// Meter counts; nil counts nothing.
	Meter Meter
	// End is when the undoing of Run's end must have ended; nil is for no such time.
	End context.Context //nolint:containedctx // of the process, not of a call
}

// Meter counts what is worth counting.
type Meter interface {
	// Uploaded is told of each try at bringing an image, "ok" or "error".
	Uploaded(result string, took time.Duration)
	// Wrote is told of raw bytes that the rack has taken, Skipped of those that
	// were zeros and so not sent.
	Wrote(bytes int)
	Skipped(bytes int)
	// Retry is told of what is tried again, and of the class of its cause.
	Retry(what, class string)
}

// unmetered is a Meter that counts nothing.
type unmetered struct{}

func (unmetered) Uploaded(string, time.Duration) {}
func (unmetered) Wrote(int)                      {}
func (unmetered) Skipped(int)                    {}
func (unmetered) Retry(string, string)           {}

func (c *Config) defaults() {
	if c.Writers <= 0 {
		c.Writers = 10
	}

	if c.Uploads <= 0 {
		c.Uploads = 4
	}

	if c.Scope == "" {
		c.Scope = ScopeAuto
	}

	if c.Grace <= 0 {
		c.Grace = 2 * time.Minute
	}

	if c.Abandon <= 0 {
		c.Abandon = 10 * time.Minute
	}

	if c.Log == nil {
		c.Log = zap.NewNop()
	}

	if c.Meter == nil {
		c.Meter = unmetered{}
	}
}
