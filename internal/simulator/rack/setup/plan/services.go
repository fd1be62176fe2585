package plan

import (
	"fmt"
	"net/netip"
)

// Services is the second plan: what runs where.
type Services struct {
	Format int    `json:"format"`
	RackID string `json:"rack_id"`
	// DNS servers start before all else, and everything else is found through
	// them: they are no entries of the list of services.
	DNS      []DNSServer `json:"dns"`
	Datasets []Dataset   `json:"datasets"`
	Services []Service   `json:"services"`
}

// DNSRole is for whom a DNS server answers.
type DNSRole string

// The DNS servers' roles.
const (
	DNSInternal DNSRole = "internal" // for the rack's own services
	DNSExternal DNSRole = "external" // for the rack's users
)

// DNSServer is planned to run on a sled.
type DNSServer struct {
	ID      string     `json:"id"`
	Role    DNSRole    `json:"role"`
	SledID  string     `json:"sled_id"`
	Address netip.Addr `json:"address"`
	// External is the address for the rack's users, of an external server.
	External string `json:"external,omitempty"`
	Dataset  string `json:"dataset"`
}

// ServiceKind is what a service does.
type ServiceKind string

// The services' kinds, without DNS.
const (
	Database     ServiceKind = "database"
	ControlPlane ServiceKind = "control-plane"
	Pantry       ServiceKind = "pantry"
	Metrics      ServiceKind = "metrics"
)

// Ports of the services in the underlay.
const (
	PortDNS     = 53
	PortStorage = 32345
)

var ports = map[ServiceKind]uint16{Database: 32221, ControlPlane: 12221, Pantry: 17000, Metrics: 12223}

// Service is planned to run on a sled.
type Service struct {
	ID      string         `json:"id"`
	Kind    ServiceKind    `json:"kind"`
	SledID  string         `json:"sled_id"`
	Address netip.AddrPort `json:"address"`
	// External is a control plane's address for the rack's users.
	External string `json:"external,omitempty"`
	// Dataset is where the service keeps what it knows, empty for those that
	// keep nothing.
	Dataset string `json:"dataset,omitempty"`
}

// StorageDataset is the kind of the dataset in each pool that distributed disks
// are kept in; the others are of the kind of their service.
const StorageDataset = "storage"

// Dataset is a part of a storage pool.
type Dataset struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	SledID string `json:"sled_id"`
	Disk   string `json:"disk"` // serial
	// Address is where a storage dataset is served.
	Address netip.AddrPort `json:"address,omitzero"`
}

// Reported are the serials of the disks whose pools each sled, by serial, had
// reported when the plan was made.
type Reported map[string][]string

// MakeServices plans what runs on the sleds: each kind spread over them, no two
// datasets of a kind in one pool, and a storage dataset in every pool.
func MakeServices(d Description, sleds Sleds, reported Reported, newID func() string) (Services, error) {
	p, err := newPlacer(d, sleds, reported, newID)
	if err != nil {
		return Services{}, err
	}

	for _, step := range []func() error{p.storage, p.internalDNS, p.externalDNS, p.services} {
		if err := step(); err != nil {
			return Services{}, fmt.Errorf("planning services: %w", err)
		}
	}

	return p.out, nil
}

func (s Services) check(sleds Sleds) error {
	if s.RackID != sleds.RackID {
		return fmt.Errorf("it is of rack %s, and the sled plan of rack %s", s.RackID, sleds.RackID)
	}

	known, seen, datasets := map[string]bool{}, newIDs(), map[string]bool{}
	for _, sled := range sleds.Sleds {
		known[sled.ID] = true
		seen[sled.ID] = "sled " + sled.Serial
	}

	place := func(what, id, sled, dataset string) error {
		if !known[sled] {
			return fmt.Errorf("%s %s is on sled %q, which is not in the sled plan", what, id, sled)
		}

		if dataset != "" && !datasets[dataset] {
			return fmt.Errorf("%s %s has dataset %q, which is not in the plan", what, id, dataset)
		}

		return seen.add(what, id)
	}

	for _, x := range s.Datasets {
		if err := place("dataset", x.ID, x.SledID, ""); err != nil {
			return err
		}

		datasets[x.ID] = true
	}

	for _, x := range s.DNS {
		if err := place("DNS server", x.ID, x.SledID, x.Dataset); err != nil {
			return err
		}
	}

	for _, x := range s.Services {
		if err := place(string(x.Kind), x.ID, x.SledID, x.Dataset); err != nil {
			return err
		}
	}

	return nil
}
