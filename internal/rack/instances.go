package rack

import (
	"context"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// CreateInstance makes an instance and its disks. On failure the rack removes
// the disks that the call made.
func (c *Client) CreateInstance(ctx context.Context, projectID string, i oxide.InstanceCreate) (*oxide.Instance, error) {
	return change(ctx, c, "creating the instance", func(ctx context.Context) (*oxide.Instance, error) {
		return c.api.InstanceCreate(ctx, oxide.InstanceCreateParams{Project: oxide.NameOrId(projectID), Body: &i})
	})
}

// ViewInstance reads an instance by ID.
func (c *Client) ViewInstance(ctx context.Context, id string) (*oxide.Instance, error) {
	return call(ctx, c, "reading the instance", readDeadline, func(ctx context.Context) (*oxide.Instance, error) {
		return c.api.InstanceView(ctx, oxide.InstanceViewParams{Instance: oxide.NameOrId(id)})
	})
}

// ViewInstanceByName reads an instance of a project by name.
func (c *Client) ViewInstanceByName(ctx context.Context, projectID, name string) (*oxide.Instance, error) {
	return call(ctx, c, "reading the instance", readDeadline, func(ctx context.Context) (*oxide.Instance, error) {
		return c.api.InstanceView(ctx, oxide.InstanceViewParams{
			Project: oxide.NameOrId(projectID), Instance: oxide.NameOrId(name),
		})
	})
}

// ListInstances lists all instances of a project.
func (c *Client) ListInstances(ctx context.Context, projectID string) ([]oxide.Instance, error) {
	return c.SeekInstances(ctx, projectID, nil)
}

// SeekInstances lists the instances of a project until enough are there, or all.
// What is not in such a list is not proven to be absent.
func (c *Client) SeekInstances(ctx context.Context, projectID string, enough Enough[oxide.Instance]) ([]oxide.Instance, error) {
	return listUntil(ctx, c, "listing instances", enough, func(ctx context.Context, limit *int, token string) ([]oxide.Instance, string, error) {
		p, err := c.api.InstanceList(ctx, oxide.InstanceListParams{
			Project: oxide.NameOrId(projectID), Limit: limit, PageToken: token, SortBy: byID,
		})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// SeekInstanceDisks lists the disks attached to an instance until enough are there,
// or all.
func (c *Client) SeekInstanceDisks(ctx context.Context, id string, enough Enough[oxide.Disk]) ([]oxide.Disk, error) {
	return listUntil(ctx, c, "listing the instance's disks", enough, func(ctx context.Context, limit *int, token string) ([]oxide.Disk, string, error) {
		p, err := c.api.InstanceDiskList(ctx, oxide.InstanceDiskListParams{
			Instance: oxide.NameOrId(id), Limit: limit, PageToken: token, SortBy: byID,
		})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// StartInstance starts a stopped or failed instance; for one that runs or
// starts it does nothing. Unlike a start inside the create, it tells why an
// instance cannot start.
func (c *Client) StartInstance(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "starting the instance", func(ctx context.Context) error {
		_, err := c.api.InstanceStart(ctx, oxide.InstanceStartParams{Instance: oxide.NameOrId(id)})

		return err
	})
}

// StopInstance asks for a stop; the instance is stopped some time later, and a
// stop may be lost.
func (c *Client) StopInstance(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "stopping the instance", func(ctx context.Context) error {
		_, err := c.api.InstanceStop(ctx, oxide.InstanceStopParams{Instance: oxide.NameOrId(id)})

		return err
	})
}

// DeleteInstance deletes a stopped or failed instance and keeps its disks. On
// any other instance it fails and still cuts its network, so look first.
func (c *Client) DeleteInstance(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "deleting the instance", func(ctx context.Context) error {
		return c.api.InstanceDelete(ctx, oxide.InstanceDeleteParams{Instance: oxide.NameOrId(id)})
	})
}
