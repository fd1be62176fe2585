package rack

import (
	"context"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// ListFloatingIPs lists all floating addresses of a project.
func (c *Client) ListFloatingIPs(ctx context.Context, projectID string) ([]oxide.FloatingIp, error) {
	return listAll(ctx, c, "listing floating addresses", func(ctx context.Context, limit *int, token string) ([]oxide.FloatingIp, string, error) {
		p, err := c.api.FloatingIpList(ctx, oxide.FloatingIpListParams{
			Project: oxide.NameOrId(projectID), Limit: limit, PageToken: token, SortBy: byID,
		})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// DeleteFloatingIP deletes a floating address by ID. The rack refuses it while
// the address is attached.
func (c *Client) DeleteFloatingIP(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "deleting the floating address", func(ctx context.Context) error {
		return c.api.FloatingIpDelete(ctx, oxide.FloatingIpDeleteParams{FloatingIp: oxide.NameOrId(id)})
	})
}
