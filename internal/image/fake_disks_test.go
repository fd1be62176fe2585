package image_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

func (r *fakeRack) CreateDisk(ctx context.Context, projectID string, c oxide.DiskCreate) (disk *oxide.Disk, err error) {
	if r.onCreate != nil {
		r.onCreate(string(c.Name))
	}

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

		if err := r.overQuota(uint64(c.Size)); err != nil {
			return err
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

// charged is what disks and snapshots take of the quota. The caller holds mu.
func (r *fakeRack) charged() uint64 {
	var sum uint64

	for _, d := range r.disks {
		sum += uint64(d.Size)
	}

	for _, s := range r.snapshots {
		sum += uint64(s.Size)
	}

	return sum
}

// overQuota is the rack's refusal of so many bytes more. The caller holds mu.
func (r *fakeRack) overQuota(more uint64) error {
	if r.quota == 0 || r.charged()+more <= r.quota {
		return nil
	}

	r.add("over the quota")

	return &rack.Error{Op: "creating", Class: rack.ClassCapacity, Status: 507, Message: "Storage Limit Exceeded"}
}

func (r *fakeRack) Utilization(ctx context.Context) (u *oxide.Utilization, err error) {
	err = r.call(ctx, "utilization", func() error {
		capacity := r.quota
		if capacity == 0 {
			capacity = 1 << 50
		}

		u = &oxide.Utilization{
			Capacity:    oxide.VirtualResourceCounts{Storage: oxide.ByteCount(capacity)},
			Provisioned: oxide.VirtualResourceCounts{Storage: oxide.ByteCount(r.charged())},
		}

		return nil
	})

	return u, err
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

		if err := r.overQuota(uint64(d.Size)); err != nil && snapshotName != "" {
			return err
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
