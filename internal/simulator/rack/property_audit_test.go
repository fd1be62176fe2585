package rack

import (
	"slices"
	"time"

	"pgregory.net/rapid"
)

// account lets all instances come to rest, and adds up meanwhile what is
// charged and reserved.
func (w *walker) account(t *rapid.T) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()

	for range 10_000 {
		<-tick.C

		if w.r.audit(t) {
			return
		}
	}

	t.Fatal("an instance never came to rest")
}

// audit compares what the rack has written down with what there is; true when
// nothing moves any more.
func (r *rig) audit(t *rapid.T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	var (
		charged Quota
		atRest  = true
		sleds   = map[*sled]sled{}
	)

	for _, x := range r.snapshots.byID {
		charged.Storage += x.size
	}

	for _, d := range r.disks.byID {
		charged.Storage += d.size

		if (d.on != nil) != (d.state == diskAttached) || d.on != nil && !slices.Contains(d.on.disks, d) {
			t.Errorf("disk %s is %s on %v", d.name, d.state, d.on)
		}

		if d.claimed != nil {
			u := sleds[d.claimed]
			u.local += d.size
			sleds[d.claimed] = u
		}
	}

	for _, i := range r.instances.byID {
		atRest = atRest && (i.state == stateStopped || i.state == stateFailed || i.state == stateRunning)

		for _, sl := range i.reservations() {
			u := sleds[sl]
			u.cpus, u.memory = u.cpus+i.ncpus, u.memory+i.memory
			sleds[sl] = u
		}

		if i.sled != nil {
			charged.CPUs, charged.Memory = charged.CPUs+int64(i.ncpus), charged.Memory+i.memory
		}
	}

	if r.provisioned != charged {
		t.Fatalf("charged is %+v, there is %+v", r.provisioned, charged)
	}

	for _, sl := range r.sleds {
		if u := sleds[sl]; u.cpus != sl.cpus || u.memory != sl.memory || u.local != sl.local {
			t.Fatalf("sled %s holds %d CPUs, %d and %d bytes; there are %+v", sl.Name, sl.cpus, sl.memory, sl.local, u)
		}
	}

	r.auditAddresses(t)

	return atRest
}

// reservations are the sleds that hold room for an instance.
func (i *instance) reservations() []*sled {
	var out []*sled
	if i.sled != nil {
		out = append(out, i.sled)
	}

	if i.migration != nil {
		out = append(out, i.migration.target)
	}

	return out
}

// auditAddresses counts what is taken of pools and subnets.
func (r *rig) auditAddresses(t *rapid.T) {
	whole, slots, private := len(r.floating.byID), 0, 0

	for _, i := range r.instances.byID {
		whole += len(i.ephemeral())
		slots += len(i.ips) - len(i.ephemeral())

		for _, f := range i.floating {
			if f.on != i {
				t.Errorf("address %s is listed on %s", f.name, i.name)
			}
		}

		for n, x := range i.nics {
			private += 2

			if x.primary != (n == 0) {
				t.Errorf("interface %d of %s is primary: %v", n, i.name, x.primary)
			}
		}
	}

	for _, p := range r.pools.byID {
		whole -= len(p.whole)

		for _, used := range p.shared {
			for _, taken := range used {
				if taken {
					slots--
				}
			}
		}
	}

	for _, n := range r.subnets.byID {
		private -= len(n.taken)
	}

	if whole != 0 || slots != 0 || private != 0 {
		t.Errorf("addresses off by %d whole, %d shared and %d private ones", whole, slots, private)
	}
}
