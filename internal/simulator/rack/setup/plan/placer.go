package plan

import (
	"fmt"
	"net/netip"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/addresses"
)

// placer makes a service plan.
type placer struct {
	description Description
	newID       func() string
	sleds       []*placed
	dns         []netip.AddrPort
	out         Services
}

// placed is a sled with what the plan has put on it so far.
type placed struct {
	PlannedSled
	addresses *addresses.Allocator
	total     int
	kinds     map[string]int
	pools     []*placedPool
}

type placedPool struct {
	disk  string
	total int
	kinds map[string]bool
}

// DNSAddresses are those of a rack's internal DNS servers. They follow from its
// subnet, so that every service knows them before it has asked anybody.
func DNSAddresses(d Description) ([]netip.AddrPort, error) {
	rack, err := netip.ParsePrefix(d.Subnet)
	if err != nil {
		return nil, fmt.Errorf("subnet: %w", err)
	}

	subnet, err := addresses.Subnet(rack, dnsSubnet)
	if err != nil {
		return nil, err
	}

	var out []netip.AddrPort

	for a := addresses.NewAllocator(subnet); len(out) < d.Services.InternalDNS; {
		next, err := a.Next()
		if err != nil {
			return nil, err
		}

		out = append(out, netip.AddrPortFrom(next, PortDNS))
	}

	return out, nil
}

func newPlacer(d Description, sleds Sleds, reported Reported, newID func() string) (*placer, error) {
	dns, err := DNSAddresses(d)
	if err != nil {
		return nil, fmt.Errorf("planning services: %w", err)
	}

	p := &placer{
		description: d, newID: newID, dns: dns,
		out: Services{Format: format, RackID: sleds.RackID},
	}

	for _, s := range sleds.Sleds {
		one := &placed{PlannedSled: s, addresses: addresses.NewAllocator(s.Subnet), kinds: map[string]int{}}

		for _, disk := range reported[s.Serial] {
			one.pools = append(one.pools, &placedPool{disk: disk, kinds: map[string]bool{}})
		}

		if len(one.pools) < MinPools {
			return nil, fmt.Errorf("planning services: sled %s has %d of %d storage pools", s.Serial, len(one.pools), MinPools)
		}

		p.sleds = append(p.sleds, one)
	}

	return p, nil
}

// sled finds the one for another service of a kind: with the fewest of it, then
// with the least on it, then the first. With a dataset it has a pool for it.
func (p *placer) sled(kind string, dataset bool) (*placed, *placedPool, error) {
	var (
		best *placed
		pool *placedPool
	)

	for _, s := range p.sleds {
		room := s.pool(kind)
		if dataset && room == nil {
			continue
		}

		if best == nil || s.kinds[kind] < best.kinds[kind] || s.kinds[kind] == best.kinds[kind] && s.total < best.total {
			best, pool = s, room
		}
	}

	if best == nil {
		return nil, nil, fmt.Errorf("no storage pool is left for another %s: each takes one of its kind", kind)
	}

	best.kinds[kind]++
	best.total++

	return best, pool, nil
}

// pool is the one with the least in it that has nothing of the kind, or nil.
func (s *placed) pool(kind string) *placedPool {
	var best *placedPool

	for _, p := range s.pools {
		if !p.kinds[kind] && (best == nil || p.total < best.total) {
			best = p
		}
	}

	return best
}

func (p *placer) dataset(kind string, s *placed, in *placedPool) string {
	in.kinds[kind] = true
	in.total++

	d := Dataset{ID: p.newID(), Kind: kind, SledID: s.ID, Disk: in.disk}
	p.out.Datasets = append(p.out.Datasets, d)

	return d.ID
}

func (p *placer) storage() error {
	for _, s := range p.sleds {
		for _, in := range s.pools {
			p.dataset(StorageDataset, s, in)

			a, err := s.addresses.Next()
			if err != nil {
				return fmt.Errorf("sled %s: %w", s.Serial, err)
			}

			p.out.Datasets[len(p.out.Datasets)-1].Address = netip.AddrPortFrom(a, PortStorage)
		}
	}

	return nil
}

func (p *placer) internalDNS() error {
	for _, at := range p.dns {
		if err := p.dnsServer(DNSInternal, func(*placed) (netip.Addr, error) { return at.Addr(), nil }, ""); err != nil {
			return err
		}
	}

	return nil
}

func (p *placer) externalDNS() error {
	for i := range p.description.Services.ExternalDNS {
		next := func(s *placed) (netip.Addr, error) { return s.addresses.Next() }
		if err := p.dnsServer(DNSExternal, next, p.description.ExternalAddresses.DNS[i]); err != nil {
			return err
		}
	}

	return nil
}

func (p *placer) dnsServer(role DNSRole, next func(*placed) (netip.Addr, error), external string) error {
	kind := string(role) + "-dns"

	s, in, err := p.sled(kind, true)
	if err != nil {
		return err
	}

	a, err := next(s)
	if err != nil {
		return fmt.Errorf("sled %s: %w", s.Serial, err)
	}

	p.out.DNS = append(p.out.DNS, DNSServer{
		ID: p.newID(), Role: role, SledID: s.ID, Address: a, External: external, Dataset: p.dataset(kind, s, in),
	})

	return nil
}

func (p *placer) services() error {
	c := p.description.Services

	for _, k := range []struct {
		kind    ServiceKind
		count   int
		dataset bool
	}{{Database, c.Database, true}, {Metrics, c.Metrics, true}, {Pantry, c.Pantry, false}, {ControlPlane, c.ControlPlane, false}} {
		for i := range k.count {
			if err := p.service(k.kind, i, k.dataset); err != nil {
				return err
			}
		}
	}

	return nil
}

func (p *placer) service(kind ServiceKind, nth int, dataset bool) error {
	s, in, err := p.sled(string(kind), dataset)
	if err != nil {
		return err
	}

	a, err := s.addresses.Next()
	if err != nil {
		return fmt.Errorf("sled %s: %w", s.Serial, err)
	}

	out := Service{ID: p.newID(), Kind: kind, SledID: s.ID, Address: netip.AddrPortFrom(a, ports[kind])}

	if dataset {
		out.Dataset = p.dataset(string(kind), s, in)
	}

	if kind == ControlPlane {
		out.External = p.description.ExternalAddresses.API[nth]
	}

	p.out.Services = append(p.out.Services, out)

	return nil
}
