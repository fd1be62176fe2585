package rack

import (
	"crypto/rand"
	"fmt"
	"net/netip"
)

type nic struct {
	meta     // scope is the instance's ID
	vpcID    string
	subnet   *subnet
	mac      string
	primary  bool
	v4, v6   netip.Addr // invalid: no such stack
	transit4 []string
	transit6 []string
}

type stackView struct {
	IP         string   `json:"ip"`
	TransitIPs []string `json:"transit_ips"`
}

type taggedStack struct {
	Type  string `json:"type"`
	Value any    `json:"value"`
}

type nicView struct {
	identity
	InstanceID string      `json:"instance_id"`
	VPCID      string      `json:"vpc_id"`
	SubnetID   string      `json:"subnet_id"`
	MAC        string      `json:"mac"`
	Primary    bool        `json:"primary"`
	IPStack    taggedStack `json:"ip_stack"`
}

func viewNIC(n *nic) any {
	v4 := stackView{n.v4.String(), append([]string{}, n.transit4...)}
	v6 := stackView{n.v6.String(), append([]string{}, n.transit6...)}
	stack := taggedStack{"dual_stack", map[string]stackView{"v4": v4, "v6": v6}}

	switch {
	case !n.v6.IsValid():
		stack = taggedStack{"v4", v4}
	case !n.v4.IsValid():
		stack = taggedStack{"v6", v6}
	}

	return nicView{n.identity(), n.scope, n.vpcID, n.subnet.id, n.mac, n.primary, stack}
}

// newMAC is a random address of the range that instances get.
func newMAC() (string, error) {
	var b [3]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("choosing a MAC address: %w", err)
	}

	return fmt.Sprintf("A8:40:25:F%X:%02X:%02X", b[0]&7, b[1], b[2]), nil
}

// addNIC gives an instance an interface; the first is its primary. Held: s.mu.
func (s *Server) addNIC(i *instance, spec nicSpec) (*nic, error) {
	v, found := s.vpcs.named(i.scope, spec.vpc)
	if !found {
		return nil, notFound(kindVPC, spec.vpc)
	}

	sub, found := s.subnets.named(v.id, spec.subnet)
	if !found {
		return nil, notFound(kindSubnet, spec.subnet)
	}

	if err := fitsColumn(spec.description, maxDescription); err != nil {
		return nil, err
	}

	if err := i.hasRoomFor(spec.name, v, sub); err != nil {
		return nil, err
	}

	mac, err := newMAC()
	if err != nil {
		return nil, err
	}

	n := &nic{
		meta: newMeta(s, i.id, spec.name, spec.description), vpcID: v.id, subnet: sub, mac: mac,
		primary: len(i.nics) == 0, transit4: spec.transit4, transit6: spec.transit6,
	}

	if spec.v4 {
		if n.v4, err = sub.assign(sub.v4, spec.addr4, n.id); err != nil {
			return nil, err
		}
	}

	if spec.v6 {
		addr, err := sub.assign(sub.v6, spec.addr6, n.id)
		if err != nil {
			n.free()

			return nil, err
		}

		n.v6 = addr
	}

	if err := s.nics.add(n); err != nil {
		n.free()

		return nil, err
	}

	i.nics = append(i.nics, n)

	return n, nil
}

// hasRoomFor applies the rules for interfaces side by side: at most eight, all
// in one VPC, each with a name and a subnet of its own.
func (i *instance) hasRoomFor(name string, v *vpc, sub *subnet) error {
	if len(i.nics) >= maxNICs {
		return invalidRequest("cannot attach more than %d network interfaces to instance", maxNICs)
	}

	for _, other := range i.nics {
		switch {
		case other.name == name:
			return alreadyExists(kindNIC, name)
		case other.vpcID != v.id:
			return invalidRequest("All interfaces must be in the same VPC")
		case other.subnet == sub:
			return invalidRequest("Each interface for an instance must be in a distinct VPC Subnet")
		}
	}

	return nil
}

// dropNIC gives an interface's addresses back. Held: s.mu.
func (s *Server) dropNIC(n *nic) {
	n.free()
	s.nics.remove(n)
}

func (n *nic) free() {
	delete(n.subnet.taken, n.v4)
	delete(n.subnet.taken, n.v6)
}
