package rack

// sled with what is reserved on it.
type sled struct {
	Sled
	cpus   int
	memory int64
	local  int64 // bytes claimed by local disks
}

var platformRank = map[string]int{"": 0, "amd_milan": 0, "amd_turin": 1, "amd_turin_v2": 2}

func (sl *sled) fits(i *instance) bool {
	claim, here := i.localClaim(sl)

	return here && sl.cpus+i.ncpus <= sl.CPUs && sl.memory+i.memory <= sl.Memory &&
		sl.local+claim <= sl.LocalStorage && platformRank[sl.Platform] >= platformRank[i.platform]
}

// take reserves for an instance; give undoes it.
func (sl *sled) take(i *instance) {
	sl.cpus += i.ncpus
	sl.memory += i.memory
}

func (sl *sled) give(i *instance) {
	sl.cpus -= i.ncpus
	sl.memory -= i.memory
}

// place finds a sled for an instance: one without members of its groups where
// possible, then the emptiest; nil when there is none. Held: s.mu.
func (s *Server) place(i *instance, except *sled) *sled {
	var (
		best      *sled
		bestAllow int
	)

	for _, sl := range s.sleds {
		fail, allow := rivals(i, sl)
		if sl == except || fail > 0 || !sl.fits(i) || s.sledIsOut(sl) {
			continue
		}

		if best == nil || allow < bestAllow || allow == bestAllow && sl.memory < best.memory {
			best, bestAllow = sl, allow
		}
	}

	return best
}

// rivals counts the members of an instance's groups, by policy, that hold a
// place on a sled. Members that are stopped hold none.
func rivals(i *instance, sl *sled) (fail, allow int) {
	for _, g := range i.groups {
		for _, m := range g.members {
			if m == i || m.sled != sl && (m.migration == nil || m.migration.target != sl) {
				continue
			}

			if g.policy == "fail" {
				fail++
			} else {
				allow++
			}
		}
	}

	return fail, allow
}

// reserve charges the silo's quota and finds a sled, where the instance's local
// disks then stay. Held: s.mu.
func (s *Server) reserve(i *instance) error {
	const advice = "Either stop unused instances to free up resources or contact the rack operator to request a capacity increase."

	if s.provisioned.CPUs+int64(i.ncpus) > s.quota().CPUs {
		return noCapacity("vCPU Limit Exceeded: Not enough vCPUs to complete request. " + advice)
	}

	if s.provisioned.Memory+i.memory > s.quota().Memory {
		return noCapacity("Memory Limit Exceeded: Not enough memory to complete request. " + advice)
	}

	best := s.place(i, nil)
	if best == nil {
		return noCapacity("Failed to place instance: Could not find any valid sled for the instance")
	}

	best.take(i)
	i.claimLocal(best)
	i.sled = best
	s.provisioned.CPUs += int64(i.ncpus)
	s.provisioned.Memory += i.memory

	return nil
}

// release gives back what reserve took, except the space of local disks, and
// what a migration holds. Held: s.mu.
func (s *Server) release(i *instance) {
	if i.sled == nil {
		return
	}

	if i.migration != nil {
		i.migration.target.give(i)
		i.migration = nil
	}

	i.sled.give(i)
	i.sled = nil
	s.provisioned.CPUs -= int64(i.ncpus)
	s.provisioned.Memory -= i.memory
}
