package rack

func allSubnets(s *Server) *table[*subnet]   { return s.subnets }
func allRouters(s *Server) *table[*router]   { return s.routers }
func allGateways(s *Server) *table[*gateway] { return s.gateways }

// queryVPC is the VPC that a call names beside its path. Held: s.mu.
func (c *call) queryVPC(need Role) (*vpc, error) {
	selector, err := c.parameter("vpc")
	if err != nil {
		return nil, err
	}

	return resolve(c, c.s.vpcs, selector, need)
}

// resolveInVPC finds an object of a VPC: a name needs the VPC beside it, an ID
// must come without. label is what the rack calls the object. Held: s.mu.
func resolveInVPC[T entity](c *call, t *table[T], label, selector string, need Role) (T, error) {
	var none T

	if err := checkNameOrID(selector); err != nil {
		return none, badParse("bad parameter in URL path: %v", err)
	}

	hasVPC := c.query.Has("vpc")

	switch {
	case isUUID(selector) && (hasVPC || c.query.Has("project")):
		return none, invalidRequest("when providing %s as an ID VPC and project should not be specified", label)
	case isUUID(selector):
		x, found := t.get(canonicalID(selector))
		if !found {
			return none, notFound(t.kind, selector)
		}

		if _, err := resolveID(c, c.s.vpcs, x.head().scope, need); err != nil {
			return none, hideAs(err, t.kind, selector)
		}

		return x, nil
	case !hasVPC:
		return none, invalidRequest("%s should either be UUID or VPC should be specified", label)
	}

	v, err := c.queryVPC(need)
	if err != nil {
		return none, err
	}

	x, found := t.named(v.id, selector)
	if !found {
		return none, notFound(t.kind, selector)
	}

	return x, nil
}

// hideAs keeps a refusal but names the object that was asked for.
func hideAs(err error, kind, selector string) error {
	if statusOf(answer{}, err) == 404 {
		return notFound(kind, selector)
	}

	return err
}

// listingInVPC answers a page of what a VPC holds of one kind.
func listingInVPC[T entity](of func(*Server) *table[T], view func(T) any) operation {
	return func(s *Server, c *call) (answer, error) {
		s.mu.Lock()
		defer s.mu.Unlock()

		pg, err := c.pageWith("project", "vpc")
		if err != nil {
			return answer{}, err
		}

		v, err := c.queryVPC(RoleViewer)
		if err != nil {
			return answer{}, err
		}

		return listIn(pg, of(s), v.id, view)
	}
}

// viewingInVPC answers the object of a VPC that the path names at a key.
func viewingInVPC[T entity](of func(*Server) *table[T], key string, view func(T) any) operation {
	return func(s *Server, c *call) (answer, error) {
		s.mu.Lock()
		defer s.mu.Unlock()

		x, err := resolveInVPC(c, of(s), key, c.path(key), RoleViewer)
		if err != nil {
			return answer{}, err
		}

		return ok(view(x)), nil
	}
}
