package rack

// The calls that read alike for all kinds of objects that a project holds.

func allDisks(s *Server) *table[*disk]          { return s.disks }
func allSnapshots(s *Server) *table[*snapshot]  { return s.snapshots }
func allGroups(s *Server) *table[*group]        { return s.groups }
func allFloating(s *Server) *table[*floatingIP] { return s.floating }
func allVPCs(s *Server) *table[*vpc]            { return s.vpcs }

// listing answers a page of what a project holds of one kind.
func listing[T entity](of func(*Server) *table[T], view func(T) any) operation {
	return func(s *Server, c *call) (answer, error) {
		s.mu.Lock()
		defer s.mu.Unlock()

		pg, p, err := c.pageProject()
		if err != nil {
			return answer{}, err
		}

		return listIn(pg, of(s), p.id, view)
	}
}

// viewing answers the object that the path names at a key.
func viewing[T entity](of func(*Server) *table[T], key string, view func(T) any) operation {
	return func(s *Server, c *call) (answer, error) {
		s.mu.Lock()
		defer s.mu.Unlock()

		x, err := resolve(c, of(s), c.path(key), RoleViewer)
		if err != nil {
			return answer{}, err
		}

		return ok(view(x)), nil
	}
}

// updating gives the object that the path names another name or description.
func updating[T entity](of func(*Server) *table[T], key string, need Role, view func(T) any) operation {
	return func(s *Server, c *call) (answer, error) {
		o := parseBody(c.body)
		ch := o.change()

		if o.err != nil {
			return answer{}, o.err
		}

		s.mu.Lock()
		defer s.mu.Unlock()

		x, err := resolve(c, of(s), c.path(key), need)
		if err != nil {
			return answer{}, err
		}

		if err := apply(ch, of(s), x); err != nil {
			return answer{}, err
		}

		return ok(view(x)), nil
	}
}

// change is what an update may say of every object; nil leaves as it is.
type change struct{ name, description *string }

func (o *object) change() change {
	ch := change{description: o.optionalText("description")}

	if name := o.optionalName("name"); name != "" {
		ch.name = &name
	}

	return ch
}

// apply carries out a change, or nothing of it. Held: s.mu.
func apply[T entity](ch change, t *table[T], x T) error {
	m := x.head()
	name, description := m.name, m.description

	if ch.name != nil {
		name = *ch.name
	}

	if ch.description != nil {
		description = *ch.description
	}

	if err := fitsColumn(description, maxDescription); err != nil {
		return err
	}

	if err := t.rename(x, name); err != nil {
		return err
	}

	m.description = description

	return nil
}

// pageWith reads the paging parameters, and puts the selectors that a page
// token carries along where those of other calls stand.
func (c *call) pageWith(keys ...string) (page, error) {
	pg, err := c.page(keys...)
	for k, v := range pg.selector {
		c.query.Set(k, v)
	}

	return pg, err
}

// parameter is a query parameter that has to be there.
func (c *call) parameter(key string) (string, error) {
	if !c.query.Has(key) {
		return "", badParse("unable to parse query string: missing field `%s`", key)
	}

	return c.query.Get(key), nil
}
