package rack

import (
	"net/netip"
	"slices"
)

// floatingIP is an address of a project, on an instance or on none.
type floatingIP struct {
	meta
	pool   *pool
	addr   netip.Addr
	on     *instance
	moving bool // an attach or detach is under way
}

type floatingView struct {
	identity
	ProjectID  string  `json:"project_id"`
	IP         string  `json:"ip"`
	IPPoolID   string  `json:"ip_pool_id"`
	InstanceID *string `json:"instance_id"`
}

// onInstanceView is a floating address among those of an instance.
type onInstanceView struct {
	Kind string `json:"kind"`
	floatingView
}

func (f *floatingIP) view() floatingView {
	v := floatingView{identity: f.identity(), ProjectID: f.scope, IP: f.addr.String(), IPPoolID: f.pool.id}
	if f.on != nil {
		v.InstanceID = &f.on.id
	}

	return v
}

func viewFloating(f *floatingIP) any { return f.view() }

func (f *floatingIP) viewOnInstance() any { return onInstanceView{"floating", f.view()} }

// allocation says where a new floating address comes from.
func (o *object) allocation() (wanted netip.Addr, sel poolSelector) {
	if _, has := o.field("address_allocator"); !has {
		return wanted, sel
	}

	a := o.child("address_allocator")

	if a.oneOf("type", "explicit", "auto") == "explicit" {
		ip, err := netip.ParseAddr(a.text("ip"))
		if a.err == nil && err != nil {
			a.fail("ip", "invalid IP address syntax")
		}

		wanted = ip
	} else {
		sel = a.poolSelector()
	}

	o.adopt(a)

	return wanted, sel
}

func (s *Server) floatingCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	name, description := o.name("name"), o.text("description")
	wanted, sel := o.allocation()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.queryProject(RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	from, err := s.selectPoolFor(wanted, sel)
	if err != nil {
		return answer{}, err
	}

	if err := fitsColumn(description, maxDescription); err != nil {
		return answer{}, err
	}

	a, err := from.takeWhole(wanted)
	if err != nil {
		return answer{}, err
	}

	f := &floatingIP{meta: newMeta(s, p.id, name, description), pool: from, addr: a}
	if err := s.floating.add(f); err != nil {
		from.giveWhole(a)

		return answer{}, err
	}

	return created(f.view()), nil
}

func (s *Server) selectPoolFor(wanted netip.Addr, sel poolSelector) (*pool, error) {
	if wanted.IsValid() {
		return s.poolOf(wanted)
	}

	return s.selectPool(sel)
}

func (s *Server) findFloating(c *call) (*floatingIP, error) {
	return resolve(c, s.floating, c.path("floating_ip"), RoleLimitedCollaborator)
}

func (s *Server) floatingDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	f, err := s.findFloating(c)
	if err != nil {
		return answer{}, err
	}

	if f.on != nil || f.moving {
		return answer{}, invalidRequest("Floating IP cannot be deleted while attached to an instance")
	}

	s.floating.remove(f)
	f.pool.giveWhole(f.addr)

	return noContent(), nil
}

// attach puts an address on an instance.
func (f *floatingIP) attach(i *instance) error {
	if f.on != nil {
		return invalidRequest("Floating IP %q is already attached to another instance", f.name)
	}

	if err := i.mayTakeIP(f.pool.version); err != nil {
		return err
	}

	f.on = i
	i.floating = append(i.floating, f)

	return nil
}

func (f *floatingIP) detach() {
	f.on.floating = slices.DeleteFunc(f.on.floating, func(x *floatingIP) bool { return x == f })
	f.on = nil
}

// move lets the time of an attach or detach pass. Held: s.mu.
func (s *Server) move(f *floatingIP) {
	f.moving = true
	s.saga(s.cfg.Latencies.ExternalIP)
	f.moving = false
}

// floatingAttach says yes to a pair that is together already.
func (s *Server) floatingAttach(c *call) (answer, error) {
	o := parseBody(c.body)
	o.oneOf("kind", "instance")
	parent := o.nameOrID("parent")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	f, err := s.findFloating(c)
	if err != nil {
		return answer{}, err
	}

	i, err := s.parentOf(c, f, parent)
	if err != nil {
		return answer{}, err
	}

	switch {
	case f.moving:
		return answer{}, unavailable()
	case f.on == i:
		return accepted(f.view()), nil
	}

	if err := i.addressable(); err != nil {
		return answer{}, err
	}

	if err := f.attach(i); err != nil {
		return answer{}, err
	}

	s.move(f)

	return accepted(f.view()), nil
}

// parentOf finds the instance that an address is to go to: by name in the
// address's project, or by ID in the same.
func (s *Server) parentOf(c *call, f *floatingIP, selector string) (*instance, error) {
	if !isUUID(selector) {
		i, found := s.instances.named(f.scope, selector)
		if !found {
			return nil, notFound(kindInstance, selector)
		}

		return i, nil
	}

	i, err := resolveID(c, s.instances, selector, RoleLimitedCollaborator)
	if err != nil {
		return nil, err
	}

	if i.scope != f.scope {
		return nil, invalidRequest("floating IP must be in the same project as the instance")
	}

	return i, nil
}

func (s *Server) floatingDetach(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	f, err := s.findFloating(c)
	if err != nil {
		return answer{}, err
	}

	switch {
	case f.moving:
		return answer{}, unavailable()
	case f.on == nil:
		return answer{}, invalidRequest("Floating IP %q is not attached to an instance", f.name)
	}

	if err := f.on.addressable(); err != nil {
		return answer{}, err
	}

	f.detach()
	s.move(f)

	return accepted(f.view()), nil
}
