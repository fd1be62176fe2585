package rack

import (
	"net/netip"
	"slices"
)

// externalIP is an address that an instance has out of a pool for as long as
// it exists: a slice of one that is shared, or an ephemeral one.
type externalIP struct {
	kind string // snat or ephemeral
	pool *pool
	addr netip.Addr
	slot int // of a shared address
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

func (e *externalIP) free() {
	if e.kind == "snat" {
		e.pool.giveSlice(e.addr, e.slot)
	} else {
		e.pool.giveWhole(e.addr)
	}
}

// ephemeral gives an instance's ephemeral addresses: at most one per version.
func (i *instance) ephemeral() []*externalIP {
	var out []*externalIP

	for _, ip := range i.ips {
		if ip.kind == "ephemeral" {
			out = append(out, ip)
		}
	}

	return out
}

// mayTakeIP applies what every external address of an instance must fit: the
// instance's first interface, and their number.
func (i *instance) mayTakeIP(version string) error {
	speaks := len(i.nics) > 0 &&
		(version == "v4" && i.nics[0].v4.IsValid() || version == "v6" && i.nics[0].v6.IsValid())

	switch {
	case !speaks:
		return invalidRequest("The instance's primary network interface has no IP%s stack for an external IP address", version)
	case len(i.ephemeral())+len(i.floating) >= maxExternalIPs:
		return invalidRequest("An instance may not have more than %d external IP addresses", maxExternalIPs)
	}

	return nil
}

// addressable says whether external addresses can come and go in the present
// state: at rest or running they can, on the way there it is tried again.
func (i *instance) addressable() error {
	switch i.state {
	case stateStopped, stateRunning:
		return nil
	case stateCreating, stateStarting, stateStopping, stateRebooting, stateMigrating:
		return unavailable()
	case stateFailed:
	}

	return invalidRequest("external IP addresses of an instance cannot be changed in state %s", i.state)
}

// addEphemeral gives an instance an ephemeral address. Asked for once more out
// of the same pool it changes nothing. Held: s.mu.
func (s *Server) addEphemeral(i *instance, sel poolSelector) (*externalIP, error) {
	p, err := s.selectPool(sel)
	if err != nil {
		return nil, err
	}

	for _, has := range i.ephemeral() {
		switch {
		case has.pool == p:
			return has, nil
		case has.pool.version == p.version:
			return nil, invalidRequest("An instance may not have more than 1 ephemeral IP%s address", p.version)
		}
	}

	if err := i.mayTakeIP(p.version); err != nil {
		return nil, err
	}

	a, err := p.takeWhole(netip.Addr{})
	if err != nil {
		return nil, err
	}

	ip := &externalIP{kind: "ephemeral", pool: p, addr: a}
	i.ips = append(i.ips, ip)

	return ip, nil
}

// instanceIPList has no pages: an instance has few addresses.
func (s *Server) instanceIPList(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	out := resultsPage{Items: []any{}}
	for _, ip := range i.ips {
		out.Items = append(out.Items, ip.view())
	}

	for _, f := range i.floating {
		out.Items = append(out.Items, f.viewOnInstance())
	}

	return ok(out), nil
}

func (s *Server) ephemeralAttach(c *call) (answer, error) {
	o := parseBody(c.body)
	sel := o.poolSelector()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if err := i.addressable(); err != nil {
		return answer{}, err
	}

	ip, err := s.addEphemeral(i, sel)
	if err != nil {
		return answer{}, err
	}

	s.saga(s.cfg.Latencies.ExternalIP)

	return accepted(ip.view()), nil
}

// ephemeralDetach needs the version where the instance has one of each.
func (s *Server) ephemeralDetach(c *call) (answer, error) {
	version := c.query.Get("ip_version")
	if c.query.Has("ip_version") && version != "v4" && version != "v6" {
		return answer{}, badParse("unable to parse query string: ip_version: unknown variant `%s`", version)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if err := i.addressable(); err != nil {
		return answer{}, err
	}

	has := slices.DeleteFunc(i.ephemeral(), func(e *externalIP) bool { return version != "" && e.pool.version != version })

	switch len(has) {
	case 0:
		return answer{}, invalidRequest("instance does not have an ephemeral IP attached")
	case 1:
	default:
		return answer{}, invalidRequest("instance has more than one ephemeral IP: an IP version must be specified")
	}

	i.ips = slices.DeleteFunc(i.ips, func(e *externalIP) bool { return e == has[0] })
	has[0].free()
	s.saga(s.cfg.Latencies.ExternalIP)

	return noContent(), nil
}
