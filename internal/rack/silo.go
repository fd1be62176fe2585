package rack

import (
	"context"
	"net/http"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// Ping proves that the API answers, its TLS is trusted and our API version is
// served. It needs no token, and waits for no other call.
func (c *Client) Ping(ctx context.Context) error {
	return runNow(ctx, c, "reaching the rack's API", readDeadline, func(ctx context.Context) error {
		_, err := c.api.Ping(ctx)

		return err
	})
}

// Me is the user whose token this is.
func (c *Client) Me(ctx context.Context) (*oxide.CurrentUser, error) {
	return call(ctx, c, "reading the token's user", readDeadline, func(ctx context.Context) (*oxide.CurrentUser, error) {
		return c.api.CurrentUserView(ctx)
	})
}

// Utilization is the silo's quota and what is used of it.
func (c *Client) Utilization(ctx context.Context) (*oxide.Utilization, error) {
	return call(ctx, c, "reading the silo's utilization", readDeadline, func(ctx context.Context) (*oxide.Utilization, error) {
		return c.api.UtilizationView(ctx)
	})
}

// ViewSiloPolicy reads the roles that were given on the silo.
func (c *Client) ViewSiloPolicy(ctx context.Context) (*oxide.SiloRolePolicy, error) {
	return call(ctx, c, "reading the silo's policy", readDeadline, func(ctx context.Context) (*oxide.SiloRolePolicy, error) {
		return c.api.PolicyView(ctx)
	})
}

// ViewProjectPolicy reads the roles that were given on a project, by its ID. Those that
// come from the silo are not among them.
func (c *Client) ViewProjectPolicy(ctx context.Context, projectID string) (*oxide.ProjectRolePolicy, error) {
	return call(ctx, c, "reading the project's policy", readDeadline, func(ctx context.Context) (*oxide.ProjectRolePolicy, error) {
		return c.api.ProjectPolicyView(ctx, oxide.ProjectPolicyViewParams{Project: oxide.NameOrId(projectID)})
	})
}

// ListMyGroups lists the groups of the silo that the token's user is in.
func (c *Client) ListMyGroups(ctx context.Context) ([]oxide.Group, error) {
	return listAll(ctx, c, "listing the user's groups", func(ctx context.Context, limit *int, token string) ([]oxide.Group, string, error) {
		p, err := c.api.CurrentUserGroups(ctx, oxide.CurrentUserGroupsParams{Limit: limit, PageToken: token, SortBy: oxide.IdSortModeIdAscending})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// ViewProject reads a project by name or ID.
func (c *Client) ViewProject(ctx context.Context, nameOrID string) (*oxide.Project, error) {
	return call(ctx, c, "reading the project", readDeadline, func(ctx context.Context) (*oxide.Project, error) {
		return c.api.ProjectView(ctx, oxide.ProjectViewParams{Project: oxide.NameOrId(nameOrID)})
	})
}

// ListProjects lists all projects of the silo. It needs the right to read every
// one of them, so a project that is missing from it does not exist.
func (c *Client) ListProjects(ctx context.Context) ([]oxide.Project, error) {
	return listAll(ctx, c, "listing projects", func(ctx context.Context, limit *int, token string) ([]oxide.Project, string, error) {
		p, err := c.api.ProjectList(ctx, oxide.ProjectListParams{Limit: limit, PageToken: token, SortBy: byID})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// ViewVPC reads a VPC of a project by name or ID.
func (c *Client) ViewVPC(ctx context.Context, projectID, nameOrID string) (*oxide.Vpc, error) {
	return call(ctx, c, "reading the VPC", readDeadline, func(ctx context.Context) (*oxide.Vpc, error) {
		return c.api.VpcView(ctx, oxide.VpcViewParams{
			Project: selectorProject(projectID, nameOrID), Vpc: oxide.NameOrId(nameOrID),
		})
	})
}

// ViewSubnet reads a subnet by name or ID. vpcID is the ID of its VPC.
func (c *Client) ViewSubnet(ctx context.Context, vpcID, nameOrID string) (*oxide.VpcSubnet, error) {
	return call(ctx, c, "reading the subnet", readDeadline, func(ctx context.Context) (*oxide.VpcSubnet, error) {
		return c.api.VpcSubnetView(ctx, oxide.VpcSubnetViewParams{
			Vpc: selectorProject(vpcID, nameOrID), Subnet: oxide.NameOrId(nameOrID),
		})
	})
}

// ViewSubnetOf reads a subnet by its name and that of its VPC, neither of them an
// ID. The rack's error tells which of the two it has not.
func (c *Client) ViewSubnetOf(ctx context.Context, projectID, vpcName, name string) (*oxide.VpcSubnet, error) {
	return call(ctx, c, "reading the subnet", readDeadline, func(ctx context.Context) (*oxide.VpcSubnet, error) {
		return c.api.VpcSubnetView(ctx, oxide.VpcSubnetViewParams{
			Project: oxide.NameOrId(projectID), Vpc: oxide.NameOrId(vpcName), Subnet: oxide.NameOrId(name),
		})
	})
}

// ViewAntiAffinityGroup reads a group of a project by name or ID.
func (c *Client) ViewAntiAffinityGroup(ctx context.Context, projectID, nameOrID string) (*oxide.AntiAffinityGroup, error) {
	return call(ctx, c, "reading the anti-affinity group", readDeadline, func(ctx context.Context) (*oxide.AntiAffinityGroup, error) {
		return c.api.AntiAffinityGroupView(ctx, oxide.AntiAffinityGroupViewParams{
			Project: selectorProject(projectID, nameOrID), AntiAffinityGroup: oxide.NameOrId(nameOrID),
		})
	})
}

// raw sends a prepared body and expects an empty success.
func raw(ctx context.Context, api *oxide.Client, req oxide.Request) error {
	resp, err := api.MakeRequest(ctx, req)
	if err != nil {
		return err
	}

	defer drain(resp)

	return oxide.NewHTTPError(resp)
}

// drain lets the connection be used again.
func drain(resp *http.Response) {
	buf := make([]byte, 512)

	for {
		if _, err := resp.Body.Read(buf); err != nil {
			break
		}
	}

	_ = resp.Body.Close()
}
