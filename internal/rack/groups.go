package rack

import (
	"context"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// ListAntiAffinityGroups lists all anti-affinity groups of a project.
func (c *Client) ListAntiAffinityGroups(ctx context.Context, projectID string) ([]oxide.AntiAffinityGroup, error) {
	return listAll(ctx, c, "listing anti-affinity groups",
		func(ctx context.Context, limit *int, token string) ([]oxide.AntiAffinityGroup, string, error) {
			p, err := c.api.AntiAffinityGroupList(ctx, oxide.AntiAffinityGroupListParams{
				Project: oxide.NameOrId(projectID), Limit: limit, PageToken: token, SortBy: byID,
			})
			if err != nil {
				return nil, "", err
			}

			return p.Items, p.NextPage, nil
		})
}

// ListAntiAffinityGroupMembers lists the members of a group by its ID.
func (c *Client) ListAntiAffinityGroupMembers(ctx context.Context, groupID string) ([]oxide.AntiAffinityGroupMember, error) {
	return listAll(ctx, c, "listing the members of the anti-affinity group",
		func(ctx context.Context, limit *int, token string) ([]oxide.AntiAffinityGroupMember, string, error) {
			p, err := c.api.AntiAffinityGroupMemberList(ctx, oxide.AntiAffinityGroupMemberListParams{
				AntiAffinityGroup: oxide.NameOrId(groupID), Limit: limit, PageToken: token, SortBy: byID,
			})
			if err != nil {
				return nil, "", err
			}

			return p.Items, p.NextPage, nil
		})
}

// CreateAntiAffinityGroup makes a group in a project, by its ID.
func (c *Client) CreateAntiAffinityGroup(ctx context.Context, projectID string, g oxide.AntiAffinityGroupCreate) (*oxide.AntiAffinityGroup, error) {
	return change(ctx, c, "creating the anti-affinity group", func(ctx context.Context) (*oxide.AntiAffinityGroup, error) {
		return c.api.AntiAffinityGroupCreate(ctx, oxide.AntiAffinityGroupCreateParams{Project: oxide.NameOrId(projectID), Body: &g})
	})
}

// DeleteAntiAffinityGroup deletes a group by ID, whether or not it has members:
// the rack does not refuse it.
func (c *Client) DeleteAntiAffinityGroup(ctx context.Context, id string) error {
	return changeOnly(ctx, c, "deleting the anti-affinity group", func(ctx context.Context) error {
		return c.api.AntiAffinityGroupDelete(ctx, oxide.AntiAffinityGroupDeleteParams{AntiAffinityGroup: oxide.NameOrId(id)})
	})
}
