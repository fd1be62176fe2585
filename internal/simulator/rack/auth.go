package rack

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Role is what a user may do in a silo or a project.
type Role string

// Roles, from least to most. The empty role may nothing.
const (
	RoleNone                Role = ""
	RoleViewer              Role = "viewer"
	RoleLimitedCollaborator Role = "limited-collaborator"
	RoleCollaborator        Role = "collaborator"
	RoleAdmin               Role = "admin"
)

// SiloNone is the silo role of a token that shall have none; an empty role in
// Token.SiloRole without project roles means the default.
const SiloNone Role = "none"

func (r Role) rank() int {
	switch r {
	case RoleViewer:
		return 1
	case RoleLimitedCollaborator:
		return 2
	case RoleCollaborator:
		return 3
	case RoleAdmin:
		return 4
	case RoleNone, SiloNone:
	}

	return 0
}

func (r Role) atLeast(o Role) bool { return r.rank() >= o.rank() }

// Token is a bearer token of a silo user.
type Token struct {
	// Name stands for the token in the call log; default: the user.
	Name  string
	Value string
	// User is the user's display name; tokens of one user share SSH keys.
	User string
	// SiloRole defaults to collaborator when ProjectRoles is empty too.
	SiloRole     Role
	ProjectRoles map[string]Role // by the name that the project was made with
	Expires      time.Time       // zero: never
	// FleetViewer lets the token's user read what is of the whole rack.
	FleetViewer bool
	// Groups are silo groups, by name, that the user belongs to.
	Groups []string

	id   string
	made time.Time
}

func (t *Token) setDefaults() {
	if t.User == "" {
		t.User = "provider"
	}

	if t.Name == "" {
		t.Name = t.User
	}

	if t.SiloRole == RoleNone && len(t.ProjectRoles) == 0 {
		t.SiloRole = RoleCollaborator
	}
}

// SetToken adds a token, or replaces the one of the same value.
func (s *Server) SetToken(t Token) {
	t.setDefaults()

	s.mu.Lock()
	defer s.mu.Unlock()

	t.identify(s.clock.Now(), s.tokens[t.Value])
	s.tokens[t.Value] = &t
	s.knowUser(&t)
}

// RevokeToken makes the rack answer 401 to a token.
func (s *Server) RevokeToken(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.tokens, value)
}

// authenticate finds the caller.
func (s *Server) authenticate(r *http.Request) (*Token, *user, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return nil, nil, unauthorized()
	}

	value, isBearer := strings.CutPrefix(headers[0], "Bearer ")
	if !isBearer || value == "" {
		return nil, nil, badParse("bad authentication header: expected \"Bearer <token>\"")
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	t := s.tokens[value]
	if t != nil {
		t = s.tokenNow(t)
	}

	if t == nil || t.expired(s.clock.Now()) {
		return nil, nil, unauthorized()
	}

	return t, s.users[t.User], nil
}

// tokenName is what the caller's token is called, whether or not it still
// opens anything.
func (s *Server) tokenName(r *http.Request) string {
	value, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")

	s.mu.Lock()
	defer s.mu.Unlock()

	if t := s.tokens[value]; t != nil {
		return t.Name
	}

	return ""
}

// siloRole is the caller's role on the silo.
func (c *call) siloRole() Role { return c.token.SiloRole }

// projectRole joins the role given on the project with the one inherited from
// the silo, where a collaborator is an admin of every project.
func (c *call) projectRole(p *project) Role {
	inherited := c.token.SiloRole
	if inherited.atLeast(RoleCollaborator) {
		inherited = RoleAdmin
	}

	if own := c.token.ProjectRoles[p.first]; own.atLeast(inherited) {
		return own
	}

	return inherited
}

// allow hides what the caller may not read and refuses what it may not do.
func (c *call) allow(p *project, need Role, hidden error) error {
	role := c.projectRole(p)

	switch {
	case !role.atLeast(RoleViewer):
		return hidden
	case !role.atLeast(need):
		return forbidden()
	default:
		return nil
	}
}

// requireSilo refuses a caller without the role: the silo itself is readable
// to all its users, so this is never a 404.
func (c *call) requireSilo(need Role) error {
	if !c.siloRole().atLeast(need) {
		return forbidden()
	}

	return nil
}

// requireFleetViewer guards what is of the whole rack.
func (c *call) requireFleetViewer() error {
	if !c.token.FleetViewer {
		return forbidden()
	}

	return nil
}

func (r Role) check() error {
	if r.rank() == 0 && r != RoleNone && r != SiloNone {
		return fmt.Errorf("unknown role %q", string(r))
	}

	return nil
}
