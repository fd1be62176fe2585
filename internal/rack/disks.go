package rack

import (
	"context"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// CreateDisk makes a disk. The answer shows it `creating` although it is done;
// read it again before judging its state.
func (c *Client) CreateDisk(ctx context.Context, projectID string, d oxide.DiskCreate) (*oxide.Disk, error) {
	return change(ctx, c, "creating the disk", func(ctx context.Context) (*oxide.Disk, error) {
		return c.api.DiskCreate(ctx, oxide.DiskCreateParams{Project: oxide.NameOrId(projectID), Body: &d})
	})
}

// ViewDisk reads a disk by ID.
func (c *Client) ViewDisk(ctx context.Context, id string) (*oxide.Disk, error) {
	return call(ctx, c, "reading the disk", readDeadline, func(ctx context.Context) (*oxide.Disk, error) {
		return c.api.DiskView(ctx, oxide.DiskViewParams{Disk: oxide.NameOrId(id)})
	})
}

// ViewDiskByName reads a disk of a project by name.
func (c *Client) ViewDiskByName(ctx context.Context, projectID, name string) (*oxide.Disk, error) {
	return call(ctx, c, "reading the disk", readDeadline, func(ctx context.Context) (*oxide.Disk, error) {
		return c.api.DiskView(ctx, oxide.DiskViewParams{Project: oxide.NameOrId(projectID), Disk: oxide.NameOrId(name)})
	})
}

// ListDisks lists all disks of a project.
func (c *Client) ListDisks(ctx context.Context, projectID string) ([]oxide.Disk, error) {
	return c.SeekDisks(ctx, projectID, nil)
}

// SeekDisks lists the disks of a project until enough are there, or all. What is
// not in such a list is not proven to be absent.
func (c *Client) SeekDisks(ctx context.Context, projectID string, enough Enough[oxide.Disk]) ([]oxide.Disk, error) {
	return listUntil(ctx, c, "listing disks", enough, func(ctx context.Context, limit *int, token string) ([]oxide.Disk, string, error) {
		p, err := c.api.DiskList(ctx, oxide.DiskListParams{
			Project: oxide.NameOrId(projectID), Limit: limit, PageToken: token, SortBy: byID,
		})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// DeleteDisk deletes a disk by ID. The rack allows it for detached and faulted
// disks only. A delete that fails half-way renames the disk, never its ID.
func (c *Client) DeleteDisk(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "deleting the disk", func(ctx context.Context) error {
		return c.api.DiskDelete(ctx, oxide.DiskDeleteParams{Disk: oxide.NameOrId(id)})
	})
}

// ViewSnapshot reads a snapshot by ID.
func (c *Client) ViewSnapshot(ctx context.Context, id string) (*oxide.Snapshot, error) {
	return call(ctx, c, "reading the snapshot", readDeadline, func(ctx context.Context) (*oxide.Snapshot, error) {
		return c.api.SnapshotView(ctx, oxide.SnapshotViewParams{Snapshot: oxide.NameOrId(id)})
	})
}

// ViewSnapshotByName reads a snapshot of a project by name.
func (c *Client) ViewSnapshotByName(ctx context.Context, projectID, name string) (*oxide.Snapshot, error) {
	return call(ctx, c, "reading the snapshot", readDeadline, func(ctx context.Context) (*oxide.Snapshot, error) {
		return c.api.SnapshotView(ctx, oxide.SnapshotViewParams{
			Project: oxide.NameOrId(projectID), Snapshot: oxide.NameOrId(name),
		})
	})
}

// ListSnapshots lists all snapshots of a project.
func (c *Client) ListSnapshots(ctx context.Context, projectID string) ([]oxide.Snapshot, error) {
	return listAll(ctx, c, "listing snapshots", func(ctx context.Context, limit *int, token string) ([]oxide.Snapshot, string, error) {
		p, err := c.api.SnapshotList(ctx, oxide.SnapshotListParams{
			Project: oxide.NameOrId(projectID), Limit: limit, PageToken: token, SortBy: byID,
		})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// DeleteSnapshot deletes a snapshot by ID.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "deleting the snapshot", func(ctx context.Context) error {
		return c.api.SnapshotDelete(ctx, oxide.SnapshotDeleteParams{Snapshot: oxide.NameOrId(id)})
	})
}
