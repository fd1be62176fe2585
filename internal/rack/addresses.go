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

// ViewFloatingIPByName reads a floating address of a project by name.
func (c *Client) ViewFloatingIPByName(ctx context.Context, projectID, name string) (*oxide.FloatingIp, error) {
	return call(ctx, c, "reading the floating address", readDeadline, func(ctx context.Context) (*oxide.FloatingIp, error) {
		return c.api.FloatingIpView(ctx, oxide.FloatingIpViewParams{
			Project: oxide.NameOrId(projectID), FloatingIp: oxide.NameOrId(name),
		})
	})
}

// CreateFloatingIP takes an address out of a pool for a project.
func (c *Client) CreateFloatingIP(ctx context.Context, projectID string, f oxide.FloatingIpCreate) (*oxide.FloatingIp, error) {
	return change(ctx, c, "creating the floating address", func(ctx context.Context) (*oxide.FloatingIp, error) {
		return c.api.FloatingIpCreate(ctx, oxide.FloatingIpCreateParams{Project: oxide.NameOrId(projectID), Body: &f})
	})
}

// ListIPPools lists all address pools that the silo may use. A page that is not
// full is taken for the last: the list is advice.
func (c *Client) ListIPPools(ctx context.Context) ([]oxide.SiloIpPool, error) {
	all := func([]oxide.SiloIpPool) bool { return true }

	return listUntil(ctx, c, "listing address pools", all, func(ctx context.Context, limit *int, token string) ([]oxide.SiloIpPool, string, error) {
		p, err := c.api.IpPoolList(ctx, oxide.IpPoolListParams{Limit: limit, PageToken: token, SortBy: byID})
		if err != nil {
			return nil, "", err
		}

		return p.Items, p.NextPage, nil
	})
}

// ListSubnetNICs lists all network interfaces that have an address of a subnet.
func (c *Client) ListSubnetNICs(ctx context.Context, subnetID string) ([]oxide.InstanceNetworkInterface, error) {
	return listAll(ctx, c, "listing the network interfaces of the subnet",
		func(ctx context.Context, limit *int, token string) ([]oxide.InstanceNetworkInterface, string, error) {
			p, err := c.api.VpcSubnetListNetworkInterfaces(ctx, oxide.VpcSubnetListNetworkInterfacesParams{
				Subnet: oxide.NameOrId(subnetID), Limit: limit, PageToken: token, SortBy: byID,
			})
			if err != nil {
				return nil, "", err
			}

			return p.Items, p.NextPage, nil
		})
}
