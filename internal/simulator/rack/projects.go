package rack

const (
	kindProject  = "project"
	kindVPC      = "vpc"
	kindSubnet   = "vpc-subnet"
	kindGroup    = "anti-affinity-group"
	kindPool     = "ip-pool"
	kindSSHKey   = "ssh-key"
	kindDisk     = "disk"
	kindSnapshot = "snapshot"
	kindImage    = "image"
	kindInstance = "instance"
	kindRouter   = "vpc-router"
	kindRoute    = "router-route"
	kindGateway  = "internet-gateway"
	kindFloating = "floating-ip"
	kindNIC      = "instance-network-interface"
)

type project struct {
	meta
	// first is the name that it was made with: roles are given by it, and stay
	// when the project gets another.
	first string
}

func viewProject(p *project) any { return p.identity() }

// addProject makes a project with its VPC and subnet. Held: s.mu, except at
// start.
func (s *Server) addProject(name, description string) (*project, error) {
	if err := fitsColumn(description, maxDescription); err != nil {
		return nil, err
	}

	p := &project{newMeta(s, "", name, description), name}
	if err := s.projects.add(p); err != nil {
		return nil, err
	}

	if err := s.addDefaultVPC(p); err != nil {
		return nil, err
	}

	return p, nil
}

func (s *Server) projectCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	name, description := o.name("name"), o.text("description")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if err := c.requireSilo(RoleCollaborator); err != nil {
		return answer{}, err
	}

	p, err := s.addProject(name, description)
	if err != nil {
		return answer{}, err
	}

	s.saga(s.cfg.Latencies.ProjectCreate)

	return created(viewProject(p)), nil
}

func (s *Server) projectView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.findProject(c.path("project"), RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return ok(viewProject(p)), nil
}

func (s *Server) projectList(c *call) (answer, error) {
	pg, err := c.page()
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if err := c.requireSilo(RoleViewer); err != nil {
		return answer{}, err
	}

	return listIn(pg, s.projects, "", viewProject)
}

func (s *Server) projectUpdate(c *call) (answer, error) {
	o := parseBody(c.body)
	ch := o.change()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.findProject(c.path("project"), RoleAdmin)
	if err != nil {
		return answer{}, err
	}

	if err := apply(ch, s.projects, p); err != nil {
		return answer{}, err
	}

	return ok(viewProject(p)), nil
}

func (s *Server) projectDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.findProject(c.path("project"), RoleAdmin)
	if err != nil {
		return answer{}, err
	}

	if err := s.projectIsEmpty(p); err != nil {
		return answer{}, err
	}

	s.projects.remove(p)

	return noContent(), nil
}

func (s *Server) projectIsEmpty(p *project) error {
	for _, held := range []struct {
		what  string
		count int
	}{
		{"an instance", s.instances.count(p.id)},
		{"a disk", s.disks.count(p.id)},
		{"a project image", s.images.count(p.id)},
		{"a snapshot", s.snapshots.count(p.id)},
		{"a floating ip", s.floating.count(p.id)},
		{"a vpc", s.vpcs.count(p.id)},
		{"an anti affinity group", s.groups.count(p.id)},
	} {
		if held.count > 0 {
			return invalidRequest("project to be deleted contains %s", held.what)
		}
	}

	return nil
}
