// Package controlplane is the part of a rack's control plane that comes up
// before its API does: it finds its database by DNS, asks it every two seconds
// whether the rack has been handed over, and takes the hand-over, once.
//
//	state    | event                                    | becomes
//	---------+------------------------------------------+---------
//	-        | started                                  | waiting
//	waiting  | the database can not be found or read    | (stays, and warns)
//	waiting  | the database knows of no hand-over       | (stays)
//	waiting  | the database knows of one                | told
//	told     | restarted                                | waiting, and told by its first question
//
// A hand-over is the database's: the first one that it stores wins, whichever
// control plane took it, and whichever answer was lost. Every later one is
// answered early and changes nothing, not even when it says something else.
package controlplane

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
)

// HandOver is all that the control plane is told of its rack. Datasets come to
// be known in no other way.
type HandOver struct {
	RackID       string             `json:"rack_id"`
	DNSZone      string             `json:"dns_zone"`
	Certificates []string           `json:"certificates"`
	AddressPools []plan.AddressPool `json:"address_pools"`
	Sleds        []Sled             `json:"sleds"`
	DNS          []plan.DNSServer   `json:"dns"`
	Services     []plan.Service     `json:"services"`
	Datasets     []Dataset          `json:"datasets"`
}

// Sled is a sled and what it can carry.
type Sled struct {
	ID       string       `json:"id"`
	Serial   string       `json:"serial"`
	Subnet   netip.Prefix `json:"subnet"`
	Platform string       `json:"platform"`
	CPUs     int          `json:"cpus"`
	Memory   int64        `json:"memory"` // GiB
}

// Dataset is a planned dataset with the size of its pool.
type Dataset struct {
	plan.Dataset
	PoolSize int64 `json:"pool_size"` // GiB
}

// difference names the parts in which two hand-overs differ.
func (h HandOver) difference(other HandOver) ([]string, error) {
	a, err := h.fields()
	if err != nil {
		return nil, err
	}

	b, err := other.fields()
	if err != nil {
		return nil, err
	}

	return plan.Difference(a, b), nil
}

func (h HandOver) fields() (map[string]any, error) {
	raw, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encoding a hand-over: %w", err)
	}

	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("reading a hand-over: %w", err)
	}

	return out, nil
}
