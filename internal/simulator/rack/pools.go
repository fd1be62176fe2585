package rack

import (
	"fmt"
	"net/netip"
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
	slices    map[netip.Addr]*[snatPerAddr]bool
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
		meta: newMeta("", cfg.Name, "external addresses"), version: cfg.IPVersion, isDefault: cfg.Default,
		whole: map[netip.Addr]bool{}, slices: map[netip.Addr]*[snatPerAddr]bool{},
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

// externalIP is an address of an instance that comes out of a pool.
type externalIP struct {
	kind string // snat or ephemeral
	pool *pool
	addr netip.Addr
	slot int
}

type snatView struct {
	Kind      string `json:"kind"`
	IP        string `json:"ip"`
	IPPoolID  string `json:"ip_pool_id"`
	FirstPort int    `json:"first_port"`
	LastPort  int    `json:"last_port"`
}

type ephemeralView struct {
	Kind     string `json:"kind"`
	IP       string `json:"ip"`
	IPPoolID string `json:"ip_pool_id"`
}

func (e *externalIP) view() any {
	if e.kind == "snat" {
		return snatView{e.kind, e.addr.String(), e.pool.id, e.slot * snatPorts, (e.slot+1)*snatPorts - 1}
	}

	return ephemeralView{e.kind, e.addr.String(), e.pool.id}
}

// takeSNAT finds a free slice, filling shared addresses first.
func (p *pool) takeSNAT() (*externalIP, error) {
	for _, a := range p.addrs {
		if p.whole[a] {
			continue
		}

		used := p.slices[a]
		if used == nil {
			used = &[snatPerAddr]bool{}
			p.slices[a] = used
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

func (p *pool) takeWhole() (*externalIP, error) {
	for _, a := range p.addrs {
		if !p.whole[a] && p.slices[a] == nil {
			p.whole[a] = true

			return &externalIP{"ephemeral", p, a, 0}, nil
		}
	}

	return nil, noCapacity(poolNoneFree)
}

func (e *externalIP) free() {
	if e.kind == "ephemeral" {
		delete(e.pool.whole, e.addr)

		return
	}

	used := e.pool.slices[e.addr]
	used[e.slot] = false

	if *used == [snatPerAddr]bool{} {
		delete(e.pool.slices, e.addr)
	}
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
