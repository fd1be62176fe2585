package rack

import (
	"crypto/rand"
	"fmt"
	"net/netip"

	"github.com/google/uuid"
)

const (
	defaultName     = "default"
	defaultIPv4     = "172.30.0.0/22"
	reservedAtStart = 5 // addresses at the head of a subnet that no NIC gets
)

type vpc struct {
	meta
	prefix netip.Prefix // IPv6 /48
	router string
}

type vpcView struct {
	identity
	ProjectID      string `json:"project_id"`
	DNSName        string `json:"dns_name"`
	IPv6Prefix     string `json:"ipv6_prefix"`
	SystemRouterID string `json:"system_router_id"`
}

func viewVPC(v *vpc) any {
	return vpcView{v.identity(), v.scope, v.name, v.prefix.String(), v.router}
}

type subnet struct {
	meta
	v4, v6 netip.Prefix
	taken  map[netip.Addr]string // address to NIC
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

// addDefaultVPC gives a new project VPC and subnet `default`. Held: s.mu.
func (s *Server) addDefaultVPC(p *project) error {
	var a [16]byte

	if _, err := rand.Read(a[1:6]); err != nil {
		return fmt.Errorf("choosing a VPC prefix: %w", err)
	}

	a[0] = 0xfd
	v := &vpc{
		meta:   newMeta(p.id, defaultName, "Default VPC"),
		prefix: netip.PrefixFrom(netip.AddrFrom16(a), 48), router: uuid.NewString(),
	}

	if err := s.vpcs.add(v); err != nil {
		return err
	}

	return s.addDefaultSubnet(v)
}

func (s *Server) addDefaultSubnet(v *vpc) error {
	return s.subnets.add(&subnet{
		meta: newMeta(v.id, defaultName, "The default subnet for "+v.name),
		v4:   netip.MustParsePrefix(defaultIPv4), v6: netip.PrefixFrom(v.prefix.Addr(), 64),
		taken: map[netip.Addr]string{},
	})
}

func (s *Server) vpcDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	v, err := resolve(c, s.vpcs, c.path("vpc"), RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	if s.subnets.count(v.id) > 0 {
		return answer{}, invalidRequest("VPC cannot be deleted while VPC Subnets exist")
	}

	s.vpcs.remove(v)

	return noContent(), nil
}

// findSubnet resolves the subnet of a path: its name needs the VPC beside it.
func (c *call) findSubnet(need Role) (*subnet, error) {
	selector := c.path("subnet")
	hasVPC := c.query.Has("vpc")

	if err := checkNameOrID(selector); err != nil {
		return nil, badParse("bad parameter in URL path: %v", err)
	}

	if isUUID(selector) {
		if hasVPC {
			return nil, invalidRequest("when providing subnet as an ID VPC should not be specified")
		}

		n, found := c.s.subnets.get(canonicalID(selector))
		if !found {
			return nil, notFound(kindSubnet, selector)
		}

		if _, err := resolveID(c, c.s.vpcs, n.scope, need); err != nil {
			return nil, hideAs(err, kindSubnet, selector)
		}

		return n, nil
	}

	if !hasVPC {
		return nil, invalidRequest("subnet should either be UUID or VPC should be specified")
	}

	v, err := resolve(c, c.s.vpcs, c.query.Get("vpc"), need)
	if err != nil {
		return nil, err
	}

	n, found := c.s.subnets.named(v.id, selector)
	if !found {
		return nil, notFound(kindSubnet, selector)
	}

	return n, nil
}

// hideAs keeps a refusal but names the object that was asked for.
func hideAs(err error, kind, selector string) error {
	if statusOf(answer{}, err) == 404 {
		return notFound(kind, selector)
	}

	return err
}

func (s *Server) subnetView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	n, err := c.findSubnet(RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return ok(viewSubnet(n)), nil
}

func (s *Server) subnetList(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, err := c.page("project", "vpc")
	if err != nil {
		return answer{}, err
	}

	selector, has := pg.selector["vpc"]
	if !has {
		return answer{}, badParse("unable to parse query string: missing field `vpc`")
	}

	if p, has := pg.selector["project"]; has {
		c.query.Set("project", p)
	}

	v, err := resolve(c, s.vpcs, selector, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return listIn(pg, s.subnets, v.id, viewSubnet)
}

func (s *Server) subnetDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	n, err := c.findSubnet(RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	if len(n.taken) > 0 {
		return answer{}, invalidRequest("VPC subnet cannot be deleted while network interfaces in the subnet exist")
	}

	s.subnets.remove(n)

	return noContent(), nil
}

// assign gives a NIC an address of a block: the one wanted, or the lowest free.
func (n *subnet) assign(block netip.Prefix, wanted netip.Addr, nic string) (netip.Addr, error) {
	if wanted.IsValid() {
		switch {
		case !block.Contains(wanted):
			return wanted, invalidRequest("Requested IP address \"%s\" is not contained in the subnet", wanted)
		case n.reserved(block, wanted):
			return wanted, invalidRequest("Requested IP address \"%s\" is reserved", wanted)
		case n.taken[wanted] != "":
			return wanted, invalidRequest("The IP address \"%s\" is not available", wanted)
		}

		n.taken[wanted] = nic

		return wanted, nil
	}

	a := block.Addr()
	for range reservedAtStart {
		a = a.Next()
	}

	for ; block.Contains(a) && !n.reserved(block, a); a = a.Next() {
		if n.taken[a] == "" {
			n.taken[a] = nic

			return a, nil
		}
	}

	version := "IPv6"
	if block.Addr().Is4() {
		version = "IPv4"
	}

	return a, invalidRequest("No available %s addresses for interface in subnet '%s'", version, n.name)
}

// reserved addresses are the first few of a block, and the broadcast address.
func (n *subnet) reserved(block netip.Prefix, a netip.Addr) bool {
	first := block.Addr()
	for range reservedAtStart {
		if a == first {
			return true
		}

		first = first.Next()
	}

	return a.Is4() && !block.Contains(a.Next())
}
