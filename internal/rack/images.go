package rack

import (
	"context"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// ListImages lists all images of a project, or of the silo when projectID is
// empty. A project's list has none of the silo's.
func (c *Client) ListImages(ctx context.Context, projectID string) ([]oxide.Image, error) {
	return listAll(ctx, c, "listing images", func(ctx context.Context, limit *int, token string) ([]oxide.Image, string, error) {
		p, err := c.api.ImageList(ctx, oxide.ImageListParams{
			Project: oxide.NameOrId(projectID), Limit: limit, PageToken: token, SortBy: byID,
		})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// ViewImage reads an image by ID.
func (c *Client) ViewImage(ctx context.Context, id string) (*oxide.Image, error) {
	return call(ctx, c, "reading the image", readDeadline, func(ctx context.Context) (*oxide.Image, error) {
		return c.api.ImageView(ctx, oxide.ImageViewParams{Image: oxide.NameOrId(id)})
	})
}

// CreateImage makes an image of a project from a snapshot of it. The rack does
// not look at the snapshot's state.
func (c *Client) CreateImage(ctx context.Context, projectID string, i oxide.ImageCreate) (*oxide.Image, error) {
	return change(ctx, c, "creating the image", func(ctx context.Context) (*oxide.Image, error) {
		return c.api.ImageCreate(ctx, oxide.ImageCreateParams{Project: oxide.NameOrId(projectID), Body: &i})
	})
}

// PromoteImage moves a project's image to the silo under the same ID. For an
// image of the silo it fails.
func (c *Client) PromoteImage(ctx context.Context, id string) (*oxide.Image, error) {
	return change(ctx, c, "promoting the image", func(ctx context.Context) (*oxide.Image, error) {
		return c.api.ImagePromote(ctx, oxide.ImagePromoteParams{Image: oxide.NameOrId(id)})
	})
}

// DeleteImage deletes an image by ID. Disks made from it live on.
func (c *Client) DeleteImage(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "deleting the image", func(ctx context.Context) error {
		return c.api.ImageDelete(ctx, oxide.ImageDeleteParams{Image: oxide.NameOrId(id)})
	})
}
