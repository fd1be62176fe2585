package setup

import (
	"fmt"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/controlplane"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
)

const gib = int64(1) << 30

// Configure gives a rack's API what the hand-over says of sleds, storage,
// address pools and import servers. What is set already stays.
func Configure(c *rack.Config, h controlplane.HandOver) {
	if c.Sleds == nil {
		for _, s := range h.Sleds {
			c.Sleds = append(c.Sleds, rack.Sled{Name: s.Serial, CPUs: s.CPUs, Memory: s.Memory * gib, Platform: s.Platform})
		}
	}

	if c.RackStorage == 0 {
		for _, d := range h.Datasets {
			if d.Kind == plan.StorageDataset {
				c.RackStorage += d.PoolSize * gib
			}
		}
	}

	if c.Pools == nil {
		c.Pools = []rack.Pool{}
		for _, p := range h.AddressPools {
			c.Pools = append(c.Pools, addressPool(p))
		}
	}

	if c.Pantries == nil {
		n := 0

		for _, s := range h.Services {
			if s.Kind == plan.Pantry {
				n++
			}
		}

		c.Pantries = Pantries(n)
	}
}

// Pantries are the names that the API knows a rack's n import servers by.
func Pantries(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("pantry-%d", i+1)
	}

	return out
}

func addressPool(p plan.AddressPool) rack.Pool {
	out := rack.Pool{Name: p.Name, IPVersion: p.Version, Default: p.Default}

	for i, r := range p.Ranges {
		if i == 0 {
			out.First, out.Size = r.First, r.Size(p.Version)
		} else {
			out.More = append(out.More, rack.PoolRange{First: r.First, Size: r.Size(p.Version)})
		}
	}

	return out
}
