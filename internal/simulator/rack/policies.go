package rack

import (
	"cmp"
	"slices"
	"strings"
)

// roleAssignment says which role an identity has been given on the silo or on a
// project; what is inherited is not told.
type roleAssignment struct {
	IdentityID   string `json:"identity_id"`
	IdentityType string `json:"identity_type"`
	RoleName     string `json:"role_name"`
}

type rolePolicy struct {
	RoleAssignments []roleAssignment `json:"role_assignments"`
}

// siloPolicy is shown to each user of the silo, who may all read it.
func (s *Server) siloPolicy(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return ok(s.policy(c, func(t *Token) Role { return t.SiloRole })), nil
}

func (s *Server) projectPolicy(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.findProject(c.path("project"), RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return ok(s.policy(c, func(t *Token) Role { return t.ProjectRoles[p.first] })), nil
}

// policy tells the highest role of each user's tokens, and of the caller that of
// the token it came with. Held: s.mu.
func (s *Server) policy(c *call, of func(*Token) Role) rolePolicy {
	roles := map[string]Role{}

	for _, t := range s.tokens {
		u := s.users[t.User]
		if now := s.tokenNow(t); u != nil && now != nil && of(now).rank() > roles[u.id].rank() {
			roles[u.id] = of(now)
		}
	}

	roles[c.user.id] = of(c.token)

	out := rolePolicy{RoleAssignments: []roleAssignment{}}

	for id, role := range roles {
		if role.rank() > 0 {
			out.RoleAssignments = append(out.RoleAssignments, roleAssignment{id, "silo_user", strings.ReplaceAll(string(role), "-", "_")})
		}
	}

	slices.SortFunc(out.RoleAssignments, func(a, b roleAssignment) int { return cmp.Compare(a.IdentityID, b.IdentityID) })

	return out
}
