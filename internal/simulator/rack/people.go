package rack

import (
	"slices"
	"time"
)

// user is a silo user; the name of its meta is the display name.
type user struct {
	meta
	groups []*siloGroup
}

// siloGroup is a group of users of the silo.
type siloGroup struct{ meta }

// personView is how users and groups look alike.
type personView struct {
	ID           string    `json:"id"`
	DisplayName  string    `json:"display_name"`
	SiloID       string    `json:"silo_id"`
	TimeCreated  time.Time `json:"time_created"`
	TimeModified time.Time `json:"time_modified"`
}

func (s *Server) viewPerson(m *meta) any {
	return personView{m.id, m.name, s.siloID, m.created, m.modified}
}

func (s *Server) viewUser(u *user) any { return s.viewPerson(&u.meta) }

func (s *Server) viewSiloGroup(g *siloGroup) any { return s.viewPerson(&g.meta) }

// knowUser makes a token's user and its groups known. Held: s.mu.
func (s *Server) knowUser(t *Token) {
	u := s.users[t.User]
	if u == nil {
		u = &user{meta: newMeta(s, "", t.User, "")}
		s.users[t.User] = u
	}

	for _, name := range t.Groups {
		g := s.siloGroups[name]
		if g == nil {
			g = &siloGroup{newMeta(s, "", name, "")}
			s.siloGroups[name] = g
		}

		if !slices.Contains(u.groups, g) {
			u.groups = append(u.groups, g)
		}
	}
}

// pageByID reads the paging parameters of a list that has no names to go by.
func (c *call) pageByID(keys ...string) (page, error) {
	if by := sortMode(c.query.Get("sort_by")); by != "" && by != byIDAscending {
		return page{}, badParse("unable to parse query string: sort_by: unknown variant `%s`, expected `id_ascending`", by)
	}

	c.query.Set("sort_by", string(byIDAscending))

	return c.page(keys...)
}

// userList shows all users of the silo, or those of a group, to each of them.
func (s *Server) userList(c *call) (answer, error) {
	pg, err := c.pageByID("group")
	if err != nil {
		return answer{}, err
	}

	group, inGroup := pg.selector["group"]
	if inGroup && !isUUID(group) {
		return answer{}, badParse("unable to parse query string: group: UUID parsing failed: %q", group)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if _, err := s.findSiloGroup(group); inGroup && err != nil {
		return answer{}, err
	}

	var out []*user

	for _, u := range s.users {
		if !inGroup || slices.ContainsFunc(u.groups, func(g *siloGroup) bool { return g.id == canonicalID(group) }) {
			out = append(out, u)
		}
	}

	return list(pg, out, s.viewUser)
}

func (s *Server) userView(c *call) (answer, error) {
	id, err := c.pathID("user_id")
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for _, u := range s.users {
		if u.id == id {
			return ok(s.viewUser(u)), nil
		}
	}

	return answer{}, notFound("silo-user", id)
}

func (s *Server) groupsOfSilo(c *call) (answer, error) {
	pg, err := c.pageByID()
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	var out []*siloGroup
	for _, g := range s.siloGroups {
		out = append(out, g)
	}

	return list(pg, out, s.viewSiloGroup)
}

func (s *Server) siloGroupView(c *call) (answer, error) {
	id, err := c.pathID("group_id")
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	g, err := s.findSiloGroup(id)
	if err != nil {
		return answer{}, err
	}

	return ok(s.viewSiloGroup(g)), nil
}

func (s *Server) findSiloGroup(id string) (*siloGroup, error) {
	for _, g := range s.siloGroups {
		if g.id == canonicalID(id) {
			return g, nil
		}
	}

	return nil, notFound("silo-group", id)
}

// myGroups are the groups of the caller.
func (s *Server) myGroups(c *call) (answer, error) {
	pg, err := c.pageByID()
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return list(pg, c.user.groups, s.viewSiloGroup)
}
