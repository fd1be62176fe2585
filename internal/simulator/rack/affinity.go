package rack

type group struct {
	meta
	policy  string // allow or fail
	members map[string]*instance
}

type groupView struct {
	identity
	ProjectID     string `json:"project_id"`
	Policy        string `json:"policy"`
	FailureDomain string `json:"failure_domain"`
}

func viewGroup(g *group) any { return groupView{g.identity(), g.scope, g.policy, "sled"} }

// memberView is a member as a list shows it.
type memberView struct {
	Type  string      `json:"type"`
	Value memberValue `json:"value"`
}

type memberValue struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	RunState runState `json:"run_state"`
}

func viewMember(i *instance) any {
	return memberView{"instance", memberValue{i.id, i.name, i.state}}
}

// join makes an instance a member, which it can become only while it holds no
// place on a sled.
func (g *group) join(i *instance) error {
	switch {
	case g.members[i.id] != nil:
		return alreadyExists("anti-affinity-group-member", i.id)
	case i.sled != nil:
		return invalidRequest("instance cannot be added to anti-affinity group with reservation")
	case len(g.members) >= maxGroupMembers:
		return invalidRequest("an anti-affinity group may have at most %d members", maxGroupMembers)
	case len(i.groups) >= maxGroups:
		return invalidRequest("an instance may be a member of at most %d anti-affinity groups", maxGroups)
	}

	g.members[i.id] = i
	i.groups = append(i.groups, g)

	return nil
}

func (g *group) leave(i *instance) {
	delete(g.members, i.id)

	kept := i.groups[:0]

	for _, x := range i.groups {
		if x != g {
			kept = append(kept, x)
		}
	}

	clear(i.groups[len(kept):])
	i.groups = kept
}

func (s *Server) groupCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	name, description := o.name("name"), o.text("description")
	policy := o.oneOf("policy", "allow", "fail")
	o.oneOf("failure_domain", "sled")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.queryProject(RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if err := fitsColumn(description, maxDescription); err != nil {
		return answer{}, err
	}

	g := &group{meta: newMeta(s, p.id, name, description), policy: policy, members: map[string]*instance{}}
	if err := s.groups.add(g); err != nil {
		return answer{}, err
	}

	return created(viewGroup(g)), nil
}

func (s *Server) findGroup(c *call, need Role) (*group, error) {
	return resolve(c, s.groups, c.path("anti_affinity_group"), need)
}

func (s *Server) groupDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	g, err := s.findGroup(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	for _, i := range g.members {
		g.leave(i)
	}

	s.groups.remove(g)

	return noContent(), nil
}

func (s *Server) groupMembers(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, err := c.pageWith("project")
	if err != nil {
		return answer{}, err
	}

	g, err := s.findGroup(c, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	var members []*instance
	for _, i := range g.members {
		members = append(members, i)
	}

	return list(pg, members, viewMember)
}

// member resolves group and instance of a member call: both by name with the
// project, or both by ID without.
func (s *Server) member(c *call, need Role) (*group, *instance, error) {
	g, err := s.findGroup(c, need)
	if err != nil {
		return nil, nil, err
	}

	i, err := s.findInstance(c, need)

	return g, i, err
}

func (s *Server) memberView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	g, i, err := s.member(c, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	if g.members[i.id] == nil {
		return answer{}, notFound("anti-affinity-group-member", i.id)
	}

	return ok(viewMember(i)), nil
}

func (s *Server) memberAdd(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	g, i, err := s.member(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if i.scope != g.scope {
		return answer{}, invalidRequest("instance and anti-affinity group must be in the same project")
	}

	if err := g.join(i); err != nil {
		return answer{}, err
	}

	return created(viewMember(i)), nil
}

func (s *Server) memberRemove(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	g, i, err := s.member(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	switch {
	case g.members[i.id] == nil:
		return answer{}, notFound("anti-affinity-group-member", i.id)
	case i.sled != nil:
		return answer{}, invalidRequest("instance cannot be removed from anti-affinity group with reservation")
	}

	g.leave(i)

	return noContent(), nil
}
