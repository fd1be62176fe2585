package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/addresses"
)

// dnsSubnet is the /64 that belongs to no sled: the addresses of the internal
// DNS servers are in it, where all can find them without asking anybody.
const dnsSubnet = 0

// Sleds is the first plan: who is who, and who has which part of the underlay.
type Sleds struct {
	Format int `json:"format"`
	// Description is what the plan was made from, without the times at which
	// pools come up.
	Description json.RawMessage `json:"description"`
	RackID      string          `json:"rack_id"`
	Sleds       []PlannedSled   `json:"sleds"`
}

// PlannedSled is a sled with what it is told about itself. Its ID is made with
// the plan, is random, and is no other sled's, now or ever.
type PlannedSled struct {
	Serial string       `json:"serial"`
	ID     string       `json:"id"`
	Subnet netip.Prefix `json:"subnet"`
}

// MakeSleds plans the sleds of a rack. newID makes IDs, uuid.NewString outside
// of tests.
func MakeSleds(d Description, newID func() string) (Sleds, error) {
	rack, err := netip.ParsePrefix(d.Subnet)
	if err != nil {
		return Sleds{}, fmt.Errorf("planning sleds: %w", err)
	}

	described, err := d.identity()
	if err != nil {
		return Sleds{}, err
	}

	out := Sleds{Format: format, Description: described, RackID: newID()}

	for i, s := range d.Sleds {
		subnet, err := addresses.Subnet(rack, dnsSubnet+1+i)
		if err != nil {
			return Sleds{}, fmt.Errorf("planning sled %s: %w", s.Serial, err)
		}

		out.Sleds = append(out.Sleds, PlannedSled{Serial: s.Serial, ID: newID(), Subnet: subnet})
	}

	return out, nil
}

// identity is what makes a rack this one and no other.
func (d Description) identity() (json.RawMessage, error) {
	raw, err := json.Marshal(d.AtOnce())
	if err != nil {
		return nil, fmt.Errorf("encoding the rack description: %w", err)
	}

	return raw, nil
}

func (s Sleds) check() error {
	ids, subnets := newIDs(), map[netip.Prefix]bool{}

	if err := ids.add("the rack", s.RackID); err != nil {
		return err
	}

	for _, sled := range s.Sleds {
		if err := ids.add("sled "+sled.Serial, sled.ID); err != nil {
			return err
		}

		if !sled.Subnet.IsValid() || subnets[sled.Subnet] {
			return fmt.Errorf("sled %s: subnet %s is missing or shared", sled.Serial, sled.Subnet)
		}

		subnets[sled.Subnet] = true
	}

	return nil
}

// ids knows all IDs of a plan: each is one thing's.
type ids map[string]string

func newIDs() ids { return ids{} }

func (i ids) add(what, id string) error {
	if _, err := uuid.Parse(id); err != nil {
		return fmt.Errorf("%s: ID %q: %w", what, id, err)
	}

	if other, taken := i[id]; taken {
		return fmt.Errorf("%s has ID %s of %s", what, id, other)
	}

	i[id] = what

	return nil
}
