package rack

import "net/netip"

const defaultIPv4 = "172.30.0.0/22"

// subnet belongs to a VPC, which is its scope.
type subnet struct {
	meta
	v4, v6 netip.Prefix
	taken  map[netip.Addr]string // address to NIC
	route  *vpcRoute             // of the system router
}

type subnetView struct {
	identity
	VPCID          string  `json:"vpc_id"`
	IPv4Block      string  `json:"ipv4_block"`
	IPv6Block      string  `json:"ipv6_block"`
	CustomRouterID *string `json:"custom_router_id"`
}

func viewSubnet(n *subnet) any {
	return subnetView{n.identity(), n.scope, n.v4.String(), n.v6.String(), nil}
}

func (s *Server) findSubnet(c *call, need Role) (*subnet, error) {
	return resolveInVPC(c, s.subnets, "subnet", c.path("subnet"), need)
}

func (s *Server) subnetUpdate(c *call) (answer, error) {
	o := parseBody(c.body)
	ch, custom := o.change(), o.optionalText("custom_router")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	n, err := s.findSubnet(c, RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	if custom != nil {
		return answer{}, notFound(kindRouter, *custom)
	}

	if err := apply(ch, s.subnets, n); err != nil {
		return answer{}, err
	}

	if err := s.vpcRoutes.rename(n.route, n.name); err != nil {
		return answer{}, err
	}

	n.route.destination.Value, n.route.target.Value = n.name, n.name

	return ok(viewSubnet(n)), nil
}

func (s *Server) subnetDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	n, err := s.findSubnet(c, RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	if len(n.taken) > 0 {
		return answer{}, invalidRequest("VPC subnet cannot be deleted while network interfaces in the subnet exist")
	}

	s.vpcRoutes.remove(n.route)
	s.subnets.remove(n)

	return noContent(), nil
}

// subnetNICs lists the interfaces that have an address of the subnet.
func (s *Server) subnetNICs(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, err := c.pageWith("project", "vpc")
	if err != nil {
		return answer{}, err
	}

	n, err := s.findSubnet(c, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	var nics []*nic

	seen := map[string]bool{}

	for _, id := range n.taken {
		if x, found := s.nics.get(id); found && !seen[id] {
			seen[id] = true
			nics = append(nics, x)
		}
	}

	return list(pg, nics, viewNIC)
}

// subnetCreate adds a subnet to the VPC in the query.
func (s *Server) subnetCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	name, description := o.name("name"), o.text("description")
	v4 := o.network("ipv4_block", o.text("ipv4_block"), true)

	var v6 netip.Prefix
	if given := o.optionalText("ipv6_block"); given != nil {
		v6 = o.network("ipv6_block", *given, false)
	}

	router := o.optionalText("custom_router")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	v, err := c.queryVPC(RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	if router != nil {
		return answer{}, notFound(kindRouter, *router)
	}

	if !v6.IsValid() {
		v6 = s.nextIPv6(v)
	}

	n := &subnet{meta: newMeta(s, v.id, name, description), v4: v4, v6: v6}
	if err := s.addSubnet(v, n); err != nil {
		return answer{}, err
	}

	s.saga(s.cfg.Latencies.NetworkCreate)

	return created(viewSubnet(n)), nil
}

// network reads an address block of one IP version.
func (o *object) network(key, s string, v4 bool) netip.Prefix {
	p, err := netip.ParsePrefix(s)
	if o.err == nil && (err != nil || p.Addr().Is4() != v4) {
		o.fail(key, "invalid network %q", s)
	}

	return p
}

// addSubnet applies the rules for blocks: private, at least eight addresses,
// none in two subnets of a VPC.
func (s *Server) addSubnet(v *vpc, n *subnet) error {
	switch {
	case !n.v4.Addr().IsPrivate():
		return invalidRequest("VPC Subnet IPv4 address ranges must be from a private range")
	case n.v4 != n.v4.Masked() || n.v4.Bits() < 8 || n.v4.Bits() > 26:
		return invalidRequest("VPC Subnet IPv4 address ranges must be networks with prefixes between 8 and 26")
	case n.v6.Bits() != 64 || !v.prefix.Contains(n.v6.Addr()):
		return invalidRequest("VPC Subnet IPv6 address ranges must be a /64 of the VPC's prefix")
	}

	for _, other := range s.subnets.in(v.id) {
		if other.v4.Overlaps(n.v4) || other.v6.Overlaps(n.v6) {
			return invalidRequest("IP address range conflicts with an existing subnet")
		}
	}

	if err := fitsColumn(n.description, maxDescription); err != nil {
		return err
	}

	n.taken = map[netip.Addr]string{}
	if err := s.subnets.add(n); err != nil {
		return err
	}

	if err := s.addSubnetRoute(v, n); err != nil {
		s.subnets.remove(n)

		return err
	}

	return nil
}

// nextIPv6 is a free /64 of a VPC's prefix.
func (s *Server) nextIPv6(v *vpc) netip.Prefix {
	used := map[netip.Addr]bool{}
	for _, n := range s.subnets.in(v.id) {
		used[n.v6.Addr()] = true
	}

	a := v.prefix.Addr().As16()

	for i := range 1 << 16 {
		a[6], a[7] = byte(i>>8), byte(i)
		if !used[netip.AddrFrom16(a)] {
			break
		}
	}

	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}
