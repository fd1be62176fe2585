package rack

import (
	"net/netip"
	"slices"
)

// queryInstance is the instance that a call names beside its path. Held: s.mu.
func (c *call) queryInstance(need Role) (*instance, error) {
	selector, err := c.parameter("instance")
	if err != nil {
		return nil, err
	}

	return resolve(c, c.s.instances, selector, need)
}

// nicList lists the interfaces of the instance in the query.
func (s *Server) nicList(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, err := c.pageWith("project", "instance")
	if err != nil {
		return answer{}, err
	}

	i, err := c.queryInstance(RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return listIn(pg, s.nics, i.id, viewNIC)
}

// findNIC resolves the interface of a path: its name needs the instance beside
// it, its ID must come without. Held: s.mu.
func (s *Server) findNIC(c *call, need Role) (*instance, *nic, error) {
	selector := c.path("interface")
	if err := checkNameOrID(selector); err != nil {
		return nil, nil, badParse("bad parameter in URL path: %v", err)
	}

	hasInstance := c.query.Has("instance")

	switch {
	case isUUID(selector) && (hasInstance || c.query.Has("project")):
		return nil, nil, invalidRequest("when providing network interface as an ID instance and project should not be specified")
	case isUUID(selector):
		n, found := s.nics.get(canonicalID(selector))
		if !found {
			return nil, nil, notFound(kindNIC, selector)
		}

		i, err := resolveID(c, s.instances, n.scope, need)

		return i, n, hideAs(err, kindNIC, selector)
	case !hasInstance:
		return nil, nil, invalidRequest("network interface should either be UUID or instance should be specified")
	}

	i, err := c.queryInstance(need)
	if err != nil {
		return nil, nil, err
	}

	n, found := s.nics.named(i.id, selector)
	if !found {
		return nil, nil, notFound(kindNIC, selector)
	}

	return i, n, nil
}

func (s *Server) nicView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	_, n, err := s.findNIC(c, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return ok(viewNIC(n)), nil
}

func (s *Server) nicCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	spec := o.nic()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := c.queryInstance(RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if i.state != stateStopped {
		return answer{}, invalidRequest("Instance must be stopped to attach a new network interface")
	}

	n, err := s.addNIC(i, spec)
	if err != nil {
		return answer{}, err
	}

	return created(viewNIC(n)), nil
}

// nicUpdate replaces an interface's transit networks, and can make it the
// primary one; nothing makes a primary one secondary but another's rise.
func (s *Server) nicUpdate(c *call) (answer, error) {
	o := parseBody(c.body)
	ch, primary, transit := o.change(), o.boolOr("primary", false), o.networks("transit_ips")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	i, n, err := s.findNIC(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if i.state != stateStopped {
		return answer{}, invalidRequest("Instance must be stopped to update its network interfaces")
	}

	if err := n.checkTransit(transit); err != nil {
		return answer{}, err
	}

	if err := apply(ch, s.nics, n); err != nil {
		return answer{}, err
	}

	n.transit4, n.transit6 = nil, nil

	for _, p := range transit {
		if p.Addr().Is4() {
			n.transit4 = append(n.transit4, p.String())
		} else {
			n.transit6 = append(n.transit6, p.String())
		}
	}

	if primary {
		for _, other := range i.nics {
			other.primary = other == n
		}

		i.nics = append([]*nic{n}, slices.DeleteFunc(i.nics, func(x *nic) bool { return x == n })...)
	}

	return ok(viewNIC(n)), nil
}

// checkTransit wants networks of a version that the interface speaks, and with
// nothing in their host part.
func (n *nic) checkTransit(transit []netip.Prefix) error {
	for _, p := range transit {
		switch {
		case p != p.Masked():
			return invalidRequest("transit IP block %s has a non-zero host identifier", p)
		case p.Addr().IsMulticast() || p.Addr().IsLoopback():
			return invalidRequest("transit IP block %s is multicast or loopback", p)
		case p.Addr().Is4() && !n.v4.IsValid(), p.Addr().Is6() && !n.v6.IsValid():
			return invalidRequest("transit IP block %s is of a version that the interface has no address of", p)
		}
	}

	return nil
}

// nicDelete takes an interface away; the primary one goes last.
func (s *Server) nicDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, n, err := s.findNIC(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	switch {
	case i.state != stateStopped && i.state != stateFailed:
		return answer{}, invalidRequest("Instance must be stopped or failed to detach a network interface")
	case n.primary && len(i.nics) > 1:
		return answer{}, invalidRequest("The primary interface may not be deleted while secondary interfaces are attached")
	}

	i.nics = slices.DeleteFunc(i.nics, func(x *nic) bool { return x == n })
	s.dropNIC(n)

	return noContent(), nil
}
