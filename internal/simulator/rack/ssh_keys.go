package rack

import "fmt"

type sshKey struct {
	meta   // scope is the user's ID
	public string
}

type sshKeyView struct {
	identity
	SiloUserID string `json:"silo_user_id"`
	PublicKey  string `json:"public_key"`
}

func viewSSHKey(k *sshKey) any { return sshKeyView{k.identity(), k.scope, k.public} }

func (s *Server) sshKeyCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	name, description, public := o.name("name"), o.text("description"), o.text("public_key")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	k, err := s.addSSHKey(c.user, name, description, public)
	if err != nil {
		return answer{}, err
	}

	return created(viewSSHKey(k)), nil
}

func (s *Server) addSSHKey(u *user, name, description, public string) (*sshKey, error) {
	if err := fitsColumn(description, maxDescription); err != nil {
		return nil, err
	}

	k := &sshKey{newMeta(s, u.id, name, description), public}

	return k, s.keys.add(k)
}

// AddSSHKey gives a user a key, as the console would.
func (s *Server) AddSSHKey(userName, name, public string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	u := s.users[userName]
	if u == nil {
		return fmt.Errorf("no user %q", userName)
	}

	_, err := s.addSSHKey(u, name, "", public)

	return err
}

func (s *Server) sshKeyList(c *call) (answer, error) {
	pg, err := c.page()
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return listIn(pg, s.keys, c.user.id, viewSSHKey)
}

func (s *Server) sshKeyView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	k, err := c.findSSHKey(c.path("ssh_key"))
	if err != nil {
		return answer{}, err
	}

	return ok(viewSSHKey(k)), nil
}

func (s *Server) sshKeyDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	k, err := c.findSSHKey(c.path("ssh_key"))
	if err != nil {
		return answer{}, err
	}

	s.keys.remove(k)

	return noContent(), nil
}

// findSSHKey finds a key among the caller's own.
func (c *call) findSSHKey(selector string) (*sshKey, error) {
	if err := checkNameOrID(selector); err != nil {
		return nil, badParse("bad parameter in URL path: %v", err)
	}

	k, found := c.s.keys.named(c.user.id, selector)
	if isUUID(selector) {
		k, found = c.s.keys.get(canonicalID(selector))
	}

	if !found || k.scope != c.user.id {
		return nil, notFound(kindSSHKey, selector)
	}

	return k, nil
}
