package rack

import "net/netip"

type nicSpec struct {
	name, description, vpc, subnet string
	v4, v6                         bool
	addr4, addr6                   netip.Addr
	transit4, transit6             []string
}

func (o *object) instanceNICs(i *instanceSpec) {
	kind := "default_dual_stack"

	var n *object

	if _, has := o.field("network_interfaces"); has {
		n = o.child("network_interfaces")
		kind = n.oneOf("type", "create", "default_ipv4", "default_ipv6", "default_dual_stack", "none")
		o.adopt(n)
	}

	switch kind {
	case "none", "":
	case "create":
		i.explicitNICs = true

		if _, has := n.required("params"); !has {
			o.adopt(n)
		}

		for _, p := range n.objects("params") {
			i.nics = append(i.nics, p.nic())
			o.adopt(p)
		}

		o.adopt(n)
	default:
		i.nics = []nicSpec{{
			name: "net0", description: "default primary interface", vpc: defaultName, subnet: defaultName,
			v4: kind != "default_ipv6", v6: kind != "default_ipv4",
		}}
	}
}

func (o *object) nic() nicSpec {
	n := nicSpec{
		name: o.name("name"), description: o.text("description"),
		vpc: o.name("vpc_name"), subnet: o.name("subnet_name"), v4: true, v6: true,
	}

	if _, has := o.field("ip_config"); !has {
		return n
	}

	stack := o.child("ip_config")
	kind := stack.oneOf("type", "v4", "v6", "dual_stack")
	value := stack.child("value")
	n.v4, n.v6 = kind != "v6", kind != "v4"

	switch kind {
	case "v4":
		n.addr4, n.transit4 = value.assignment(true)
	case "v6":
		n.addr6, n.transit6 = value.assignment(false)
	case "dual_stack":
		v4, v6 := value.child("v4"), value.child("v6")
		n.addr4, n.transit4 = v4.assignment(true)
		n.addr6, n.transit6 = v6.assignment(false)
		value.adopt(v4)
		value.adopt(v6)
	}

	stack.adopt(value)
	o.adopt(stack)

	return n
}

// assignment reads an address that is chosen (invalid: by the rack), and the
// blocks that may pass through the interface.
func (o *object) assignment(v4 bool) (netip.Addr, []string) {
	var addr netip.Addr

	ip := o.child("ip")
	if ip.oneOf("type", "auto", "explicit") == "explicit" {
		a, err := netip.ParseAddr(ip.text("value"))
		if ip.err == nil && (err != nil || a.Is4() != v4) {
			ip.fail("value", "invalid IP address syntax")
		}

		addr = a
	}

	o.adopt(ip)

	transit := []string{}

	for _, p := range o.networks("transit_ips") {
		if o.err == nil && (p.Addr().Is4() != v4 || p != p.Masked()) {
			o.fail("transit_ips", "invalid network %q", p)
		}

		transit = append(transit, p.String())
	}

	return addr, transit
}

// networks reads an array of networks of either version.
func (o *object) networks(key string) []netip.Prefix {
	var out []netip.Prefix

	for _, raw := range o.list(key) {
		s := o.textOf(key, raw)

		p, err := netip.ParsePrefix(s)
		if o.err == nil && err != nil {
			o.fail(key, "invalid network %q", s)
		}

		out = append(out, p)
	}

	return out
}
