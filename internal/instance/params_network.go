package instance

import (
	"net/netip"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// The IP versions and types of addresses in a plan.
const (
	ipv4      = "v4"
	ipv6      = "v6"
	dualStack = "dual_stack"
	ephemeral = "ephemeral"
	floating  = "floating"
)

// ipStack asks for the private addresses of an interface, fixed or the rack's
// choice, in the versions of the plan.
func ipStack(n *specs.NicPlan) oxide.PrivateIpStackCreate {
	v4 := oxide.PrivateIpv4StackCreate{Ip: oxide.Ipv4Assignment{Value: oxide.Ipv4AssignmentAuto{}}}
	v6 := oxide.PrivateIpv6StackCreate{Ip: oxide.Ipv6Assignment{Value: oxide.Ipv6AssignmentAuto{}}}

	if n.GetIpv4() != "" {
		v4.Ip.Value = oxide.Ipv4AssignmentExplicit{Value: n.GetIpv4()}
	}

	if n.GetIpv6() != "" {
		v6.Ip.Value = oxide.Ipv6AssignmentExplicit{Value: n.GetIpv6()}
	}

	for _, t := range n.GetTransitIps() {
		if p, err := netip.ParsePrefix(t); err == nil && p.Addr().Is4() {
			v4.TransitIps = append(v4.TransitIps, oxide.Ipv4Net(t))
		} else {
			v6.TransitIps = append(v6.TransitIps, oxide.Ipv6Net(t))
		}
	}

	switch n.GetIpConfig() {
	case ipv6:
		return oxide.PrivateIpStackCreate{Value: oxide.PrivateIpStackCreateV6{Value: v6}}
	case dualStack:
		return oxide.PrivateIpStackCreate{Value: oxide.PrivateIpStackCreateDualStack{
			Value: oxide.PrivateIpStackCreateDualStackValue{V4: v4, V6: v6},
		}}
	default:
		return oxide.PrivateIpStackCreate{Value: oxide.PrivateIpStackCreateV4{Value: v4}}
	}
}

// poolSelector says where an address comes from. The version is always told: a
// silo may have a default pool of each.
func poolSelector(e *specs.ExternalIPPlan) oxide.PoolSelector {
	if id := e.GetPoolId(); id != "" {
		return oxide.PoolSelector{Value: oxide.PoolSelectorExplicit{Pool: oxide.NameOrId(id)}}
	}

	return oxide.PoolSelector{Value: oxide.PoolSelectorAuto{IpVersion: oxide.IpVersion(e.GetIpVersion())}}
}

// externalIPs are the addresses that an instance gets with its create: floating
// ones are there by then.
func externalIPs(spec *specs.InstanceSpec) []oxide.ExternalIpCreate {
	var all []oxide.ExternalIpCreate

	for _, e := range spec.GetPlan().GetExternalIps() {
		if e.GetType() == ephemeral {
			all = append(all, oxide.ExternalIpCreate{Value: oxide.ExternalIpCreateEphemeral{PoolSelector: poolSelector(e)}})

			continue
		}

		id := e.GetFloatingIpId()
		if id == "" {
			id = refOf(spec, e.GetName()).GetId()
		}

		all = append(all, oxide.ExternalIpCreate{Value: oxide.ExternalIpCreateFloating{FloatingIp: oxide.NameOrId(id)}})
	}

	return all
}

// refOf is what is stored of a floating address that is made for the machine,
// nil if nothing is yet.
func refOf(spec *specs.InstanceSpec, name string) *specs.FloatingIPRef {
	for _, r := range spec.GetFloatingIps() {
		if r.GetName() == name {
			return r
		}
	}

	return nil
}
