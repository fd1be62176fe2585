// Package dns is the DNS inside a rack: servers that answer SRV and AAAA
// questions over UDP, the records that a service plan makes, and the look-up by
// which services find each other. Nothing but the DNS servers themselves has an
// address that is known beforehand.
package dns

import (
	"net/netip"
	"slices"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
)

// Zone is that of the rack's own services.
const Zone = "control-plane.rack.internal"

// Records are those of the zone, by name within it.
type Records map[string][]Record

// Record is an AAAA or, with a port, an SRV record.
type Record struct {
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	Target  string     `json:"target,omitempty"` // within the zone
}

// Of makes the records of a plan: an AAAA record for each service and dataset
// with an address, an SRV record with all services of a kind, and one for each
// dataset, which leads to the service that holds it.
func Of(services plan.Services) Records {
	r := Records{}
	holder := map[string]Record{}

	for _, s := range services.DNS {
		srv := r.host(s.ID, netip.AddrPortFrom(s.Address, plan.PortDNS))
		r.add(srvName(string(s.Role)+"-dns", ""), srv)
		holder[s.Dataset] = srv
	}

	for _, s := range services.Services {
		srv := r.host(s.ID, s.Address)
		r.add(srvName(string(s.Kind), ""), srv)

		if s.Dataset != "" {
			holder[s.Dataset] = srv
		}
	}

	for _, d := range services.Datasets {
		srv, held := holder[d.ID]
		if !held {
			srv = r.host(d.ID, d.Address)
		}

		r.add(srvName(d.Kind, d.ID), srv)
	}

	return r
}

func (r Records) host(id string, at netip.AddrPort) Record {
	name := id + ".host"
	r.add(name, Record{Address: at.Addr()})

	return Record{Port: at.Port(), Target: name}
}

func (r Records) add(name string, record Record) {
	if !slices.Contains(r[name], record) {
		r[name] = append(r[name], record)
	}
}

// srvName is where the services of a kind are entered, or with an ID the one
// with that dataset.
func srvName(kind, id string) string {
	name := "_" + kind + "._tcp"
	if id != "" {
		name += "." + id
	}

	return name
}
