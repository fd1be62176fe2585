package rack

import (
	"fmt"
	"net/netip"
	"slices"
)

// snatPorts is the size of the port slice of an instance without an address
// of its own: four instances share one.
const (
	snatPorts    = 16_384
	snatPerAddr  = 65_536 / snatPorts
	poolNoneFree = "No external IP addresses available"
)

type pool struct {
	meta
	version   string
	isDefault bool
	addrs     []netip.Addr
	whole     map[netip.Addr]bool
	shared    map[netip.Addr]*[snatPerAddr]bool
}

type poolView struct {
	identity
	IPVersion string `json:"ip_version"`
	PoolType  string `json:"pool_type"`
	IsDefault bool   `json:"is_default"`
}

func viewPool(p *pool) any { return poolView{p.identity(), p.version, "unicast", p.isDefault} }

func (s *Server) addPool(cfg Pool) error {
	p := &pool{
		meta: newMeta(s, "", cfg.Name, "external addresses"), version: cfg.IPVersion, isDefault: cfg.Default,
		whole: map[netip.Addr]bool{}, shared: map[netip.Addr]*[snatPerAddr]bool{},
	}

	for _, r := range append([]PoolRange{{cfg.First, cfg.Size}}, cfg.More...) {
		a, err := netip.ParseAddr(r.First)
		if err != nil {
			return fmt.Errorf("pool %q: %w", cfg.Name, err)
		}

		if a.Is4() != (cfg.IPVersion == "v4") {
			return fmt.Errorf("pool %q: %s is no address of version %s", cfg.Name, a, cfg.IPVersion)
		}

		for range r.Size {
			p.addrs = append(p.addrs, a)
			a = a.Next()
		}
	}

	return s.pools.add(p)
}

// defaultPool is the silo's default unicast pool of an IP version.
func (s *Server) defaultPool(version string) (*pool, error) {
	for _, p := range s.pools.in("") {
		if p.isDefault && p.version == version {
			return p, nil
		}
	}

	return nil, &apiError{
		status: 404, code: "ObjectNotFound",
		message: fmt.Sprintf("not found: default unicast IP%s pool for current silo", version),
	}
}

// takeSNAT finds a free slice, filling shared addresses first.
func (p *pool) takeSNAT() (*externalIP, error) {
	for _, a := range p.addrs {
		if p.whole[a] {
			continue
		}

		used := p.shared[a]
		if used == nil {
			used = &[snatPerAddr]bool{}
			p.shared[a] = used
		}

		for i, taken := range used {
			if !taken {
				used[i] = true

				return &externalIP{"snat", p, a, i}, nil
			}
		}
	}

	return nil, noCapacity(poolNoneFree)
}

// takeWhole takes the lowest address that nobody has a part of, or the one
// that is wanted.
func (p *pool) takeWhole(wanted netip.Addr) (netip.Addr, error) {
	for _, a := range p.addrs {
		if p.whole[a] || p.shared[a] != nil || wanted.IsValid() && a != wanted {
			continue
		}

		p.whole[a] = true

		return a, nil
	}

	if wanted.IsValid() {
		return wanted, invalidRequest("Requested external IP address not available")
	}

	return wanted, noCapacity(poolNoneFree)
}

// poolOf finds the pool that an address is of.
func (s *Server) poolOf(a netip.Addr) (*pool, error) {
	for _, p := range s.pools.in("") {
		if slices.Contains(p.addrs, a) {
			return p, nil
		}
	}

	return nil, invalidRequest("The requested IP address %s is in no pool that is linked to the silo", a)
}

// poolSelector says which pool an address is to come from: one, or the default
// one of a version, which may be left open.
type poolSelector struct{ explicit, version string }

func (o *object) poolSelector() poolSelector {
	var out poolSelector

	if _, has := o.field("pool_selector"); !has {
		return out
	}

	sel := o.child("pool_selector")
	if sel.oneOf("type", "explicit", "auto") == "explicit" {
		out.explicit = sel.nameOrID("pool")
	} else {
		out.version = sel.optionalOneOf("ip_version", "v4", "v6")
	}

	o.adopt(sel)

	return out
}

func (s *Server) selectPool(sel poolSelector) (*pool, error) {
	if sel.explicit != "" {
		return s.findPool(sel.explicit)
	}

	if sel.version != "" {
		return s.defaultPool(sel.version)
	}

	v4, err4 := s.defaultPool("v4")
	v6, err6 := s.defaultPool("v6")

	switch {
	case err4 == nil && err6 == nil:
		return nil, invalidRequest("multiple default IP pools exist; an IP version must be specified")
	case err4 == nil:
		return v4, nil
	case err6 == nil:
		return v6, nil
	default:
		return nil, err4
	}
}

func (p *pool) giveWhole(a netip.Addr) { delete(p.whole, a) }

func (p *pool) giveSlice(a netip.Addr, slot int) {
	used := p.shared[a]
	used[slot] = false

	if *used == [snatPerAddr]bool{} {
		delete(p.shared, a)
	}
}

// poolUtilization is for those who may look at the fleet.
func (s *Server) poolUtilization(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := c.requireFleetViewer(); err != nil {
		return answer{}, err
	}

	p, err := s.findPool(c.path("pool"))
	if err != nil {
		return answer{}, err
	}

	return ok(map[string]float64{
		"capacity":  float64(len(p.addrs)),
		"remaining": float64(len(p.addrs) - len(p.whole) - len(p.shared)),
	}), nil
}

func (s *Server) ipPoolList(c *call) (answer, error) {
	pg, err := c.page()
	if err != nil {
		return answer{}, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return listIn(pg, s.pools, "", viewPool)
}

func (s *Server) ipPoolView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := s.findPool(c.path("pool"))
	if err != nil {
		return answer{}, err
	}

	return ok(viewPool(p)), nil
}

func (s *Server) findPool(selector string) (*pool, error) {
	if err := checkNameOrID(selector); err != nil {
		return nil, badParse("bad parameter in URL path: %v", err)
	}

	p, found := s.pools.named("", selector)
	if isUUID(selector) {
		p, found = s.pools.get(canonicalID(selector))
	}

	if !found {
		return nil, notFound(kindPool, selector)
	}

	return p, nil
}
