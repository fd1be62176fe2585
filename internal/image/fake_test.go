package image_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// journal is the one order of all calls to the rack, the factory and Omni.
type journal struct {
	mu  sync.Mutex
	ops []string
}

func (j *journal) add(op string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.ops = append(j.ops, op)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.Clone(j.ops)
}

func (j *journal) count(op string) int {
	n := 0

	for _, o := range j.all() {
		if o == op {
			n++
		}
	}

	return n
}

// fault decides what becomes of the n-th call, from 1, of an operation: whether
// it has its effect, and its error.
type fault func(n int) (effect bool, err error)

// times fails the calls first to last without effect.
func times(first, last int, err error) fault {
	return func(n int) (bool, error) {
		if n >= first && n <= last {
			return false, err
		}

		return true, nil
	}
}

// lost has its effect each time and loses the first answer.
func lost(n int) (bool, error) {
	if n == 1 {
		return true, errOf(rack.ClassLost, 0)
	}

	return true, nil
}

func errOf(c rack.Class, status int) error {
	return &rack.Error{Op: "calling the rack", Class: c, Status: status, Message: "injected " + c.String()}
}

type fakeDisk struct {
	oxide.Disk
	state    oxide.DiskStateState
	data     map[uint64][]byte
	detachAt time.Time // while finalizing
	snapshot string    // made when finalizing ends
}

type fakeSnapshot struct {
	oxide.Snapshot
	data      map[uint64][]byte
	visibleAt time.Time
}

type fakeImage struct {
	oxide.Image
	data map[uint64][]byte
}

// fakeRack keeps the rack's rules on states, names and places.
type fakeRack struct {
	*journal

	mu        sync.Mutex
	disks     map[string]*fakeDisk
	snapshots map[string]*fakeSnapshot
	images    map[string]*fakeImage
	calls     map[string]int
	faults    map[string]fault
	delays    map[string]time.Duration

	finalizing  time.Duration // how long a disk stays so after the call's answer
	snapshotLag time.Duration // how much later the snapshot is seen
	onWrite     func(disk string, offset uint64, n int) error
	deleting    int // deletions of disks and snapshots under way
}

func newRack(j *journal) *fakeRack {
	return &fakeRack{
		journal: j, disks: map[string]*fakeDisk{}, snapshots: map[string]*fakeSnapshot{}, images: map[string]*fakeImage{},
		calls: map[string]int{}, faults: map[string]fault{}, delays: map[string]time.Duration{},
	}
}

// call runs f under the lock as one call. The rack finishes what it began
// although the caller has gone.
func (r *fakeRack) call(ctx context.Context, op string, f func() error) error {
	r.add(op)
	r.mu.Lock()
	delay := r.delays[op]
	r.mu.Unlock()

	gone := ctx.Err() != nil

	if delay > 0 && !gone {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			gone = true
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.settle()
	r.calls[op]++

	effect, err := true, error(nil)
	if fault := r.faults[op]; fault != nil {
		effect, err = fault(r.calls[op])
	}

	if effect {
		if e := f(); e != nil && err == nil {
			err = e
		}
	}

	if gone {
		return fmt.Errorf("%w: %w", errOf(rack.ClassLost, 0), context.Cause(ctx))
	}

	return err
}

// settle ends the finalizing whose time has come.
func (r *fakeRack) settle() {
	for _, d := range r.disks {
		if d.state == oxide.DiskStateStateFinalizing && !time.Now().Before(d.detachAt) {
			d.state = oxide.DiskStateStateDetached

			if d.snapshot != "" {
				r.addSnapshot(d, d.snapshot, "snapshot of finalized disk "+string(d.Name), d.detachAt.Add(r.snapshotLag))
			}
		}
	}
}

func (r *fakeRack) addSnapshot(d *fakeDisk, name, description string, visibleAt time.Time) {
	id := uuid.NewString()
	r.snapshots[id] = &fakeSnapshot{
		Snapshot: oxide.Snapshot{
			Id: id, Name: oxide.Name(name), Description: description, DiskId: d.Id, ProjectId: d.ProjectId,
			Size: d.Size, State: oxide.SnapshotStateReady,
		},
		data: maps.Clone(d.data), visibleAt: visibleAt,
	}
}

func notFound(kind, what string) error {
	return &rack.Error{Op: "reading", Class: rack.ClassGone, Status: 404, Message: "not found: " + kind + " " + what}
}

func exists(kind, name string) error {
	return &rack.Error{Op: "creating", Class: rack.ClassExists, Status: 400, Message: fmt.Sprintf("already exists: %s %q", kind, name)}
}

func invalid(format string, args ...any) error {
	return &rack.Error{Op: "changing", Class: rack.ClassInvalid, Status: 400, Message: fmt.Sprintf(format, args...)}
}

func (r *fakeRack) ListImages(ctx context.Context, projectID string) (list []oxide.Image, err error) {
	op := "list images"
	if projectID == "" {
		op = "list silo"
	}

	err = r.call(ctx, op, func() error {
		for _, i := range r.images {
			if i.ProjectId == projectID {
				list = append(list, i.Image)
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return list, nil
}

func (r *fakeRack) ViewImage(ctx context.Context, id string) (img *oxide.Image, err error) {
	err = r.call(ctx, "view image", func() error {
		i := r.images[id]
		if i == nil {
			return notFound("image", id)
		}

		img = new(i.Image)

		return nil
	})

	return img, err
}

func (r *fakeRack) CreateImage(ctx context.Context, projectID string, c oxide.ImageCreate) (img *oxide.Image, err error) {
	err = r.call(ctx, "create image", func() error {
		src, ok := c.Source.AsSnapshot()
		if !ok {
			return invalid("no source")
		}

		s := r.snapshots[src.Id]
		if s == nil || s.ProjectId != projectID {
			return notFound("snapshot", src.Id)
		}

		if len(c.Description) > 512 || len(c.Os) > 64 || len(c.Version) > 64 || !naming.Legal(string(c.Name)) {
			return invalid("a field is too long, or the name is not legal")
		}

		if r.imageNamed(projectID, string(c.Name)) != nil {
			return exists("image", string(c.Name))
		}

		img = new(r.addImage(projectID, string(c.Name), c.Description, s.Size, s.data).Image)
		r.images[img.Id].Os, r.images[img.Id].Version = c.Os, c.Version

		return nil
	})
	if err != nil {
		return nil, err
	}

	return img, nil
}

func (r *fakeRack) imageNamed(projectID, name string) *fakeImage {
	for _, i := range r.images {
		if i.ProjectId == projectID && string(i.Name) == name {
			return i
		}
	}

	return nil
}

func (r *fakeRack) addImage(projectID, name, description string, size oxide.ByteCount, data map[uint64][]byte) *fakeImage {
	i := &fakeImage{Image: oxide.Image{
		Id: uuid.NewString(), Name: oxide.Name(name), Description: description, ProjectId: projectID, Size: size,
		TimeCreated: new(time.Now()),
	}, data: data}
	r.images[i.Id] = i

	return i
}

func (r *fakeRack) PromoteImage(ctx context.Context, id string) (img *oxide.Image, err error) {
	err = r.call(ctx, "promote image", func() error {
		i := r.images[id]

		switch {
		case i == nil:
			return notFound("image", id)
		case i.ProjectId == "":
			return invalid("Cannot promote a silo image")
		case r.imageNamed("", string(i.Name)) != nil:
			return exists("silo image", string(i.Name))
		}

		i.ProjectId = ""
		img = new(i.Image)

		return nil
	})
	if err != nil {
		return nil, err
	}

	return img, nil
}

func (r *fakeRack) DeleteImage(ctx context.Context, id string) error {
	return r.call(ctx, "delete image", func() error {
		if r.images[id] == nil {
			return notFound("image", id)
		}

		delete(r.images, id)

		return nil
	})
}

func (r *fakeRack) CreateDisk(ctx context.Context, projectID string, c oxide.DiskCreate) (disk *oxide.Disk, err error) {
	err = r.call(ctx, "create disk", func() error {
		b, ok := c.DiskBackend.AsDistributed()
		if !ok {
			return invalid("not distributed")
		}

		src, ok := b.DiskSource.AsImportingBlocks()

		switch {
		case !ok:
			return invalid("not for import")
		case src.BlockSize != 512 && src.BlockSize != 4096:
			return invalid("block size")
		case c.Size == 0 || c.Size%(1<<30) != 0:
			return invalid("unsupported value for \"size\": not whole GiB")
		case !naming.Legal(string(c.Name)):
			return invalid("name")
		}

		for _, d := range r.disks {
			if d.ProjectId == projectID && d.Name == c.Name {
				return exists("disk", string(c.Name))
			}
		}

		d := r.addDisk(projectID, string(c.Name), c.Description, oxide.DiskStateStateImportReady)
		d.Size, d.BlockSize = c.Size, src.BlockSize
		disk = new(d.Disk)
		disk.State = stateOf(oxide.DiskStateStateCreating)

		return nil
	})
	if err != nil {
		return nil, err
	}

	return disk, nil
}

func (r *fakeRack) addDisk(projectID, name, description string, state oxide.DiskStateState) *fakeDisk {
	d := &fakeDisk{
		Disk: oxide.Disk{
			Id: uuid.NewString(), Name: oxide.Name(name), Description: description, ProjectId: projectID,
			Size: 1 << 30, BlockSize: 512,
		},
		state: state, data: map[uint64][]byte{},
	}
	r.disks[d.Id] = d

	return d
}

// stateOf covers the states that carry nothing.
func stateOf(s oxide.DiskStateState) oxide.DiskState {
	var v oxide.DiskState
	if err := v.UnmarshalJSON(fmt.Appendf(nil, `{"state":%q}`, s)); err != nil {
		panic(err)
	}

	return v
}

func (r *fakeRack) view(d *fakeDisk) *oxide.Disk {
	v := d.Disk
	v.State = stateOf(d.state)

	return &v
}

func (r *fakeRack) ViewDisk(ctx context.Context, id string) (disk *oxide.Disk, err error) {
	err = r.call(ctx, "view disk", func() error {
		d := r.disks[id]
		if d == nil {
			return notFound("disk", id)
		}

		disk = r.view(d)

		return nil
	})

	return disk, err
}

func (r *fakeRack) ViewDiskByName(ctx context.Context, projectID, name string) (disk *oxide.Disk, err error) {
	err = r.call(ctx, "view disk by name", func() error {
		for _, d := range r.disks {
			if d.ProjectId == projectID && string(d.Name) == name {
				disk = r.view(d)

				return nil
			}
		}

		return notFound("disk", name)
	})

	return disk, err
}

func (r *fakeRack) ListDisks(ctx context.Context, projectID string) (list []oxide.Disk, err error) {
	err = r.call(ctx, "list disks", func() error {
		for _, d := range r.disks {
			if d.ProjectId == projectID {
				list = append(list, *r.view(d))
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return list, nil
}

func (r *fakeRack) alone() func() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.deleting++
	if r.deleting > 1 {
		r.add("two deletions at once")
	}

	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()

		r.deleting--
	}
}

func (r *fakeRack) DeleteDisk(ctx context.Context, id string) error {
	defer r.alone()()

	return r.call(ctx, "delete disk", func() error {
		d := r.disks[id]
		if d == nil {
			return notFound("disk", id)
		}

		if d.state != oxide.DiskStateStateDetached && d.state != oxide.DiskStateStateFaulted {
			return invalid("disk cannot be deleted in state %q", d.state)
		}

		delete(r.disks, id)

		return nil
	})
}

// move changes a disk's state as one of the import calls does.
func (r *fakeRack) move(ctx context.Context, op, id string, from, to oxide.DiskStateState, f func(*fakeDisk) error) error {
	return r.call(ctx, op, func() error {
		d := r.disks[id]
		if d == nil {
			return notFound("disk", id)
		}

		if d.state != from {
			return invalid("cannot %s disk in state %s", op, d.state)
		}

		if f != nil {
			if err := f(d); err != nil {
				return err
			}
		}

		d.state = to

		return nil
	})
}

func (r *fakeRack) StartBulkWrite(ctx context.Context, id string) error {
	return r.move(ctx, "start", id, oxide.DiskStateStateImportReady, oxide.DiskStateStateImportingFromBulkWrites, nil)
}

func (r *fakeRack) StopBulkWrite(ctx context.Context, id string) error {
	return r.move(ctx, "stop", id, oxide.DiskStateStateImportingFromBulkWrites, oxide.DiskStateStateImportReady, nil)
}

func (r *fakeRack) FinalizeImport(ctx context.Context, id, snapshotName string) error {
	err := r.move(ctx, "finalize", id, oxide.DiskStateStateImportReady, oxide.DiskStateStateFinalizing, func(d *fakeDisk) error {
		for _, s := range r.snapshots {
			if s.ProjectId == d.ProjectId && string(s.Name) == snapshotName {
				return exists("snapshot", snapshotName)
			}
		}

		d.snapshot, d.detachAt = snapshotName, time.Now().Add(r.finalizing)

		return nil
	})

	r.mu.Lock()
	defer r.mu.Unlock()

	r.settle()

	return err
}

func (r *fakeRack) BulkWrite(ctx context.Context, id string, offset uint64, data []byte) error {
	r.mu.Lock()
	hook := r.onWrite
	r.mu.Unlock()

	if hook != nil {
		if err := hook(id, offset, len(data)); err != nil {
			return err
		}
	}

	return r.call(ctx, "write", func() error {
		d := r.disks[id]

		switch {
		case d == nil:
			return notFound("disk", id)
		case d.state != oxide.DiskStateStateImportingFromBulkWrites:
			return invalid("cannot import blocks with a bulk write for disk in state %s", d.state)
		case len(data) == 0, len(data) > rack.MaxChunk, uint64(len(data))%uint64(d.BlockSize) != 0,
			offset%uint64(d.BlockSize) != 0, offset+uint64(len(data)) > uint64(d.Size):
			return invalid("bad chunk: %d bytes at %d", len(data), offset)
		}

		d.data[offset] = slices.Clone(data)

		return nil
	})
}

func (r *fakeRack) ViewSnapshotByName(ctx context.Context, projectID, name string) (snap *oxide.Snapshot, err error) {
	err = r.call(ctx, "view snapshot", func() error {
		for _, s := range r.snapshots {
			if s.ProjectId == projectID && string(s.Name) == name && !time.Now().Before(s.visibleAt) {
				snap = new(s.Snapshot)

				return nil
			}
		}

		return notFound("snapshot", name)
	})

	return snap, err
}

func (r *fakeRack) ListSnapshots(ctx context.Context, projectID string) (list []oxide.Snapshot, err error) {
	err = r.call(ctx, "list snapshots", func() error {
		for _, s := range r.snapshots {
			if s.ProjectId == projectID {
				list = append(list, s.Snapshot)
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return list, nil
}

func (r *fakeRack) DeleteSnapshot(ctx context.Context, id string) error {
	defer r.alone()()

	return r.call(ctx, "delete snapshot", func() error {
		if r.snapshots[id] == nil {
			return notFound("snapshot", id)
		}

		delete(r.snapshots, id)

		return nil
	})
}

// left names what there is besides images.
func (r *fakeRack) left() []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.settle()

	var all []string

	for _, d := range r.disks {
		all = append(all, fmt.Sprintf("disk %s in %s, %s", d.Name, d.ProjectId, d.state))
	}

	for _, s := range r.snapshots {
		all = append(all, fmt.Sprintf("snapshot %s in %s", s.Name, s.ProjectId))
	}

	return all
}

func (r *fakeRack) imageList() []*fakeImage {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Collect(maps.Values(r.images))
}

// set changes the rack's behaviour while it is used.
func (r *fakeRack) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()

	f()
}

func (r *fakeRack) checkEmpty(t *testing.T) {
	t.Helper()

	if left := r.left(); len(left) > 0 {
		t.Errorf("left over: %s", strings.Join(left, "; "))
	}

	if r.count("two deletions at once") > 0 {
		t.Error("deletions ran side by side")
	}
}
