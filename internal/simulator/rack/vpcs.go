package rack

import (
	"crypto/rand"
	"fmt"
	"net/netip"
)

const defaultName = "default"

// vpc is a private network; its scope is the project. With it come a system
// router with its routes, an internet gateway, a subnet and firewall rules.
type vpc struct {
	meta
	dnsName  string
	prefix   netip.Prefix // IPv6 /48
	router   *router
	firewall []firewallRule
}

type vpcView struct {
	identity
	ProjectID      string `json:"project_id"`
	DNSName        string `json:"dns_name"`
	IPv6Prefix     string `json:"ipv6_prefix"`
	SystemRouterID string `json:"system_router_id"`
}

func viewVPC(v *vpc) any {
	return vpcView{v.identity(), v.scope, v.dnsName, v.prefix.String(), v.router.id}
}

// addVPC makes a VPC with all that comes with one, or nothing. Held: s.mu,
// except at start.
func (s *Server) addVPC(v *vpc) error {
	if err := fitsColumn(v.description, maxDescription); err != nil {
		return err
	}

	if !v.prefix.IsValid() {
		var a [16]byte

		if _, err := rand.Read(a[1:6]); err != nil {
			return fmt.Errorf("choosing a VPC prefix: %w", err)
		}

		a[0] = 0xfd
		v.prefix = netip.PrefixFrom(netip.AddrFrom16(a), 48)
	}

	if err := s.vpcs.add(v); err != nil {
		return err
	}

	if err := s.addSystemRouter(v); err != nil {
		return err
	}

	v.firewall = defaultFirewall(v)

	if err := s.gateways.add(&gateway{newMeta(s, v.id, defaultName, "Default internet gateway")}); err != nil {
		return err
	}

	return s.addSubnet(v, &subnet{
		meta: newMeta(s, v.id, defaultName, "The default subnet for "+v.name),
		v4:   netip.MustParsePrefix(defaultIPv4), v6: netip.PrefixFrom(v.prefix.Addr(), 64),
	})
}

// addDefaultVPC gives a new project VPC and subnet `default`.
func (s *Server) addDefaultVPC(p *project) error {
	return s.addVPC(&vpc{meta: newMeta(s, p.id, defaultName, "Default VPC"), dnsName: defaultName})
}

func (s *Server) vpcCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	v := &vpc{dnsName: o.name("dns_name")}
	name, description := o.name("name"), o.text("description")

	if given := o.optionalText("ipv6_prefix"); given != nil {
		v.prefix = o.network("ipv6_prefix", *given, false)
	}

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.queryProject(RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	if v.prefix.IsValid() && (v.prefix.Bits() != 48 || v.prefix != v.prefix.Masked() || v.prefix.Addr().As16()[0] != 0xfd) {
		return answer{}, invalidRequest("VPC IPv6 address prefixes must be unique local networks of 48 bits, within fd00::/8")
	}

	v.meta = newMeta(s, p.id, name, description)
	if err := s.addVPC(v); err != nil {
		return answer{}, err
	}

	s.saga(s.cfg.Latencies.NetworkCreate)

	return created(viewVPC(v)), nil
}

func (s *Server) vpcUpdate(c *call) (answer, error) {
	o := parseBody(c.body)
	ch, dnsName := o.change(), o.optionalName("dns_name")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	v, err := resolve(c, s.vpcs, c.path("vpc"), RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	if err := apply(ch, s.vpcs, v); err != nil {
		return answer{}, err
	}

	if dnsName != "" {
		v.dnsName = dnsName
	}

	return ok(viewVPC(v)), nil
}

// vpcDelete takes along what came with the VPC, except its subnets.
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

	for _, r := range s.vpcRoutes.in(v.router.id) {
		s.vpcRoutes.remove(r)
	}

	for _, g := range s.gateways.in(v.id) {
		s.gateways.remove(g)
	}

	s.routers.remove(v.router)
	s.vpcs.remove(v)

	return noContent(), nil
}
