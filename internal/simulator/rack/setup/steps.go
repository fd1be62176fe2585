package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/controlplane"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/dns"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/sled"
)

// mostNamed is how many sleds one line names.
const mostNamed = 4

// waitPools waits until each sled reports enough storage pools.
func (r *Rack) waitPools(ctx context.Context) error {
	r.say(PhaseWaiting, "%d sleds come up", len(r.sleds))

	err := r.until(ctx, PhaseWaiting, func() error {
		var missing []string

		for _, s := range r.sleds {
			if n := len(s.Pools()); n < plan.MinPools {
				missing = append(missing, fmt.Sprintf("sled %s reports %d of %d", s.Serial(), n, plan.MinPools))
			}
		}

		if more := len(missing) - mostNamed; more > 0 {
			missing = append(missing[:mostNamed], fmt.Sprintf("and %d more", more))
		}

		if len(missing) > 0 {
			return errors.New("waiting for storage pools: " + strings.Join(missing, ", "))
		}

		return nil
	})
	if err != nil {
		return err
	}

	r.say(PhaseWaiting, "every sled reports at least %d storage pools", plan.MinPools)

	return nil
}

func (r *Rack) reported() plan.Reported {
	out := plan.Reported{}
	for _, s := range r.sleds {
		out[s.Serial()] = s.Pools()
	}

	return out
}

// startDNS tells the sleds who they are, starts the DNS servers, and enters all
// of the plan in them: who starts later finds the others from the first moment.
func (r *Rack) startDNS(ctx context.Context, sleds plan.Sleds, services plan.Services) error {
	for _, planned := range sleds.Sleds {
		err := r.until(ctx, PhaseDNS, func() error {
			return r.carryOut("initialize sled "+planned.Serial, func() error { return r.sled(sleds, planned.ID).Initialize(planned) })
		})
		if err != nil {
			return err
		}
	}

	for _, d := range services.DNS {
		err := r.until(ctx, PhaseDNS, func() error {
			s := r.sled(sleds, d.SledID)

			return r.carryOut(string(d.Role)+" DNS server "+d.ID, func() error {
				if err := s.EnsureDatasets(only(services.Datasets, d.Dataset)); err != nil {
					return err
				}

				return s.EnsureDNS(ctx, d)
			})
		})
		if err != nil {
			return err
		}

		r.say(PhaseDNS, "%s DNS server runs at %s on sled %s", d.Role, d.Address, r.sled(sleds, d.SledID).Serial())
	}

	records := dns.Of(services)

	for _, server := range r.services.servers() {
		if err := r.until(ctx, PhaseDNS, func() error {
			return r.carryOut("enter records", func() error { return server.Set(records) })
		}); err != nil {
			return err
		}
	}

	r.say(PhaseDNS, "%d names are entered in DNS, of %d services and %d datasets", len(records), len(services.Services)+len(services.DNS), len(services.Datasets))

	return nil
}

// startServices makes the datasets of each sled and starts what it runs, in the
// order of the plan: the database before those who ask it.
func (r *Rack) startServices(ctx context.Context, sleds plan.Sleds, services plan.Services) error {
	for _, planned := range sleds.Sleds {
		s := r.sled(sleds, planned.ID)

		var its []plan.Dataset

		for _, d := range services.Datasets {
			if d.SledID == planned.ID {
				its = append(its, d)
			}
		}

		if err := r.until(ctx, PhaseServices, func() error {
			return r.carryOut("datasets of sled "+planned.Serial, func() error { return s.EnsureDatasets(its) })
		}); err != nil {
			return err
		}
	}

	for _, x := range services.Services {
		s := r.sled(sleds, x.SledID)

		if err := r.until(ctx, PhaseServices, func() error {
			return r.carryOut(string(x.Kind)+" "+x.ID, func() error { return s.EnsureService(ctx, x) })
		}); err != nil {
			return err
		}

		r.say(PhaseServices, "%s runs at %s on sled %s%s", x.Kind, x.Address, s.Serial(), r.half(x))
	}

	return nil
}

// half tells of a control plane what answers and what does not.
func (r *Rack) half(x plan.Service) string {
	if x.Kind != plan.ControlPlane {
		return ""
	}

	at, _ := r.services.underlay.Loopback("tcp", x.Address)

	return ": it answers inside, at http://" + at + ", and its API does not"
}

// handOver tells the control plane, and marks that it was told. Between the two
// a crash makes it be told again, which changes nothing.
func (r *Rack) handOver(ctx context.Context, sleds plan.Sleds, services plan.Services) error {
	h := parameters(r.cfg.Description, sleds, services)
	first := false

	err := r.until(ctx, PhaseHanding, func() (err error) {
		return r.carryOut("hand-over", func() error {
			first, err = r.services.peers.HandOver(ctx, h)

			return err
		})
	})
	if err != nil {
		return err
	}

	if first {
		r.say(PhaseHanding, "hand-over: the control plane has taken the rack")
	} else {
		r.say(PhaseHanding, "hand-over: the control plane had taken the rack before, nothing is changed")
	}

	marker, err := json.Marshal(map[string]string{"rack_id": sleds.RackID})
	if err != nil {
		return fmt.Errorf("encoding the marker: %w", err)
	}

	if err := r.until(ctx, PhaseHanding, func() error { return r.cfg.Store.Save(markerName, marker) }); err != nil {
		return err
	}

	r.say(PhaseHanded, "hand-over marked as complete")

	return nil
}

// parameters are the same in each run, since all that they are made of is stored.
func parameters(d plan.Description, sleds plan.Sleds, services plan.Services) controlplane.HandOver {
	h := controlplane.HandOver{
		RackID: sleds.RackID, DNSZone: d.DNSZone, Certificates: d.Certificates, AddressPools: d.AddressPools,
		DNS: services.DNS, Services: services.Services,
	}

	size := map[string]int64{}

	for i, s := range d.Sleds {
		p := sleds.Sleds[i]
		h.Sleds = append(h.Sleds, controlplane.Sled{
			ID: p.ID, Serial: s.Serial, Subnet: p.Subnet, Platform: s.Platform, CPUs: s.CPUs, Memory: s.Memory,
		})

		for _, disk := range s.Disks {
			size[disk.Serial] = disk.Size
		}
	}

	for _, x := range services.Datasets {
		h.Datasets = append(h.Datasets, controlplane.Dataset{Dataset: x, PoolSize: size[x.Disk]})
	}

	return h
}

// sled is the one with an ID. The plan is that of the description, so it has the
// same sleds in the same order.
func (r *Rack) sled(sleds plan.Sleds, id string) *sled.Sled {
	for i, s := range sleds.Sleds {
		if s.ID == id {
			return r.sleds[i]
		}
	}

	return nil // plans are checked when they are loaded
}

func only(datasets []plan.Dataset, id string) []plan.Dataset {
	for _, d := range datasets {
		if d.ID == id {
			return []plan.Dataset{d}
		}
	}

	return nil
}

// counted tells how many of each kind a plan has.
func counted(services plan.Services) string {
	var order []string

	n := map[string]int{}
	count := func(kind string) {
		if n[kind] == 0 {
			order = append(order, kind)
		}

		n[kind]++
	}

	for _, d := range services.DNS {
		count(string(d.Role) + " DNS")
	}

	for _, s := range services.Services {
		count(string(s.Kind))
	}

	for i, kind := range order {
		order[i] = fmt.Sprintf("%d %s", n[kind], kind)
	}

	return strings.Join(order, ", ") + fmt.Sprintf(", %d datasets", len(services.Datasets))
}
