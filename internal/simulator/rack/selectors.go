package rack

// findProject resolves a project by name or ID for a caller who needs a role.
func (c *call) findProject(selector string, need Role) (*project, error) {
	if err := checkNameOrID(selector); err != nil {
		return nil, badParse("unable to parse query string: project: %v", err)
	}

	var (
		p     *project
		found bool
	)

	if isUUID(selector) {
		p, found = c.s.projects.get(canonicalID(selector))
	} else {
		p, found = c.s.projects.named("", selector)
	}

	if !found {
		return nil, notFound(kindProject, selector)
	}

	return p, c.allow(p, need, notFound(kindProject, selector))
}

// queryProject is the project of a list or create call.
func (c *call) queryProject(need Role) (*project, error) {
	if !c.query.Has("project") {
		return nil, badParse("unable to parse query string: missing field `project`")
	}

	return c.findProject(c.query.Get("project"), need)
}

// pageProject is the project of a list, which a page token carries along.
func (c *call) pageProject() (page, *project, error) {
	pg, err := c.page("project")
	if err != nil {
		return pg, nil, err
	}

	selector, has := pg.selector["project"]
	if !has {
		return pg, nil, badParse("unable to parse query string: missing field `project`")
	}

	p, err := c.findProject(selector, RoleViewer)

	return pg, p, err
}

// resolve finds an object of a project: a name needs the project beside it, an
// ID must come without. Held: s.mu.
func resolve[T entity](c *call, t *table[T], selector string, need Role) (T, error) {
	var none T

	if err := checkNameOrID(selector); err != nil {
		return none, badParse("bad parameter in URL path: %v", err)
	}

	hasProject := c.query.Has("project")

	switch {
	case isUUID(selector) && hasProject:
		return none, invalidRequest("when providing %s as an ID project should not be specified", t.kind)
	case isUUID(selector):
		return resolveID(c, t, selector, need)
	case !hasProject:
		return none, invalidRequest("%s should either be UUID or project should be specified", t.kind)
	}

	p, err := c.findProject(c.query.Get("project"), RoleViewer)
	if err != nil {
		return none, err
	}

	x, found := t.named(p.id, selector)
	if !found {
		return none, notFound(t.kind, selector)
	}

	return x, c.allow(p, need, notFound(t.kind, selector))
}

func resolveID[T entity](c *call, t *table[T], id string, need Role) (T, error) {
	var none T

	x, found := t.get(canonicalID(id))
	if !found {
		return none, notFound(t.kind, id)
	}

	p, found := c.s.projects.get(x.head().scope)
	if !found {
		return none, notFound(t.kind, id)
	}

	if err := c.allow(p, need, notFound(t.kind, id)); err != nil {
		return none, err
	}

	return x, nil
}

// resolveIn finds an object named in a body, where an ID beside the project is
// fine but must be of the same project.
func resolveIn[T entity](t *table[T], p *project, selector string) (T, error) {
	var none T

	if !isUUID(selector) {
		x, found := t.named(p.id, selector)
		if !found {
			return none, notFound(t.kind, selector)
		}

		return x, nil
	}

	x, found := t.get(canonicalID(selector))
	if !found || x.head().scope != p.id {
		return none, notFound(t.kind, selector)
	}

	return x, nil
}
