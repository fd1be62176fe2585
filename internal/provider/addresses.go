package provider

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Addresses is what planning asks of the rack about addresses.
type Addresses interface {
	ListIPPools(ctx context.Context) ([]oxide.SiloIpPool, error)
	ListFloatingIPs(ctx context.Context, projectID string) ([]oxide.FloatingIp, error)
	ListSubnetNICs(ctx context.Context, subnetID string) ([]oxide.InstanceNetworkInterface, error)
	ViewInstanceByName(ctx context.Context, projectID, name string) (*oxide.Instance, error)
}

// reservedAtStart is how many addresses at the beginning of a subnet the rack
// gives to nobody; the last one of an IPv4 subnet is the broadcast address.
const reservedAtStart = 5

func wrong(format string, args ...any) error {
	return &instance.Mend{Reason: fmt.Sprintf(format, args...)}
}

// checkFixed holds a class's fixed addresses against the subnet that they must be
// in.
func checkFixed(index int, n machineclass.NIC, subnet *oxide.VpcSubnet) error {
	for j, a := range n.Addresses {
		block, err := netip.ParsePrefix(string(subnet.Ipv4Block))
		if a.Is6() {
			block, err = netip.ParsePrefix(string(subnet.Ipv6Block))
		}

		switch {
		case err != nil:
			return fmt.Errorf("reading the blocks of subnet %q: %w", subnet.Name, err)
		case !block.Contains(a):
			return wrong("network_interfaces[%d].addresses[%d]: %s is not in %s of subnet %q", index, j, a, block, subnet.Name)
		case reservedIn(block, a):
			return wrong("network_interfaces[%d].addresses[%d]: %s is one that the rack keeps for itself in %s of subnet %q", index, j, a, block, subnet.Name)
		}
	}

	return nil
}

func reservedIn(block netip.Prefix, a netip.Addr) bool {
	first := block.Masked().Addr()
	for range reservedAtStart {
		if a == first {
			return true
		}

		first = first.Next()
	}

	return a.Is4() && !block.Contains(a.Next())
}

// resolveExternal looks up the pools and the listed floating addresses of a class.
// Which of the listed ones the machine gets is not decided here.
func (p *Provisioner) resolveExternal(ctx context.Context, plan *specs.Plan, class machineclass.Class) error {
	if len(class.ExternalIPs) == 0 {
		return nil
	}

	pools, err := p.sharedSilo().ListIPPools(ctx)
	if err != nil {
		return err
	}

	listed, err := p.listedAddresses(ctx, plan, class)
	if err != nil {
		return err
	}

	for i, e := range class.ExternalIPs {
		planned := &specs.ExternalIPPlan{Type: e.Type}
		plan.ExternalIps = append(plan.ExternalIps, planned)

		if e.Listed() {
			for j, name := range e.FloatingIPs {
				f := listed.named(name)
				if f == nil {
					return wrong("external_ips[%d].floating_ips[%d]: project %q has no floating address %q", i, j, plan.GetProjectName(), name)
				}

				if !class.NICs[0].Has(versionOf(f.Ip)) {
					return wrong("external_ips[%d].floating_ips[%d]: %s of %q is not of the primary interface's ip_config %s",
						i, j, f.Ip, name, class.NICs[0].IPConfig)
				}
			}

			continue
		}

		if err := resolvePool(planned, i, e, class.NICs[0], pools); err != nil {
			return err
		}

		if e.Type == machineclass.Floating {
			planned.Name = naming.FloatingIP(i, plan.GetRequestId())
		}
	}

	return onePerVersion(plan)
}

// onePerVersion: a pool may have told an IP version that the class does not.
func onePerVersion(plan *specs.Plan) error {
	first := map[string]int{}

	for i, e := range plan.GetExternalIps() {
		if e.GetType() != machineclass.Ephemeral {
			continue
		}

		if earlier, twice := first[e.GetIpVersion()]; twice {
			return wrong("external_ips[%d]: its pool is of IP version %s, as that of external_ips[%d], two ephemeral addresses must be of different ones",
				i, e.GetIpVersion(), earlier)
		}

		first[e.GetIpVersion()] = i
	}

	return nil
}

// resolvePool finds the pool of an address that is not listed.
func resolvePool(planned *specs.ExternalIPPlan, index int, e machineclass.ExternalIP, primary machineclass.NIC, pools []oxide.SiloIpPool) error {
	path := fmt.Sprintf("external_ips[%d]", index)

	if e.Pool == "" {
		planned.IpVersion = e.IPVersion

		for i := range pools {
			if isDefault := pools[i].IsDefault; isDefault != nil && *isDefault && usable(pools[i]) && string(pools[i].IpVersion) == e.IPVersion {
				return nil
			}
		}

		return wrong("%s.ip_version: the silo has no default address pool of IP version %s: name one in pool", path, e.IPVersion)
	}

	for i := range pools {
		pool := &pools[i]
		if pool.Id != e.Pool && string(pool.Name) != e.Pool {
			continue
		}

		planned.PoolId, planned.IpVersion = pool.Id, string(pool.IpVersion)

		switch {
		case !usable(*pool):
			return wrong("%s.pool: %q is a pool of %s addresses, must be one of unicast addresses", path, e.Pool, pool.PoolType)
		case e.IPVersion != "" && e.IPVersion != string(pool.IpVersion):
			return wrong("%s.ip_version: pool %q is of IP version %s, not %s", path, e.Pool, pool.IpVersion, e.IPVersion)
		case !primary.Has(string(pool.IpVersion)):
			return wrong("%s.pool: %q is of IP version %s, not of the primary interface's ip_config %s", path, e.Pool, pool.IpVersion, primary.IPConfig)
		}

		return nil
	}

	return wrong("%s.pool: the silo has no address pool %q", path, e.Pool)
}

func usable(pool oxide.SiloIpPool) bool { return pool.PoolType != oxide.IpPoolTypeMulticast }

// floatingIPs are those of a project, by ID and by name.
type floatingIPs map[string]*oxide.FloatingIp

// named finds one by name or ID.
func (f floatingIPs) named(nameOrID string) *oxide.FloatingIp { return f[nameOrID] }

// listedAddresses are the project's floating addresses, if the class lists any.
func (p *Provisioner) listedAddresses(ctx context.Context, plan *specs.Plan, class machineclass.Class) (floatingIPs, error) {
	if !listsFloating(class) {
		return nil, nil //nolint:nilnil // none is an answer
	}

	all, err := p.Silo.ListFloatingIPs(ctx, plan.GetProjectId())
	if err != nil {
		return nil, err
	}

	found := floatingIPs{}
	for i := range all {
		found[all[i].Id], found[string(all[i].Name)] = &all[i], &all[i]
	}

	return found, nil
}

func listsFloating(class machineclass.Class) bool {
	for _, e := range class.ExternalIPs {
		if e.Listed() {
			return true
		}
	}

	return false
}

func versionOf(address string) string {
	if a, err := netip.ParseAddr(address); err == nil && a.Is4() {
		return machineclass.IPv4
	}

	return machineclass.IPv6
}
