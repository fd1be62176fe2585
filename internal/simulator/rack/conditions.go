package rack

import (
	"maps"
	"math/rand/v2"
	"net/http"
)

// sagaOperations are the calls that start a saga, which a rack refuses while
// it is being made ready for an update.
var sagaOperations = map[string]bool{
	"project_create": true, "vpc_create": true, "vpc_subnet_create": true,
	"disk_create": true, "disk_delete": true, "disk_finalize_import": true,
	"snapshot_create": true, "snapshot_delete": true, "image_create": true, "image_delete": true,
	"instance_create": true, "instance_delete": true, "instance_start": true,
	"floating_ip_attach": true, "floating_ip_detach": true,
	"instance_ephemeral_ip_attach": true, "instance_ephemeral_ip_detach": true,
}

// maintenance is what an update under way does to a call.
func (s *Server) maintenance(op string) Fault {
	for _, h := range s.faults.holding(ConditionMaintenance) {
		if h.phase == 2 {
			h.Action = ActionReset

			return h.Fault
		}

		if sagaOperations[op] {
			h.Action, h.Status, h.Code = ActionError, http.StatusServiceUnavailable, "ServiceNotAvailable"

			return h.Fault
		}
	}

	return Fault{}
}

// newestVersion is the newest API version that the rack knows.
func (s *Server) newestVersion() string {
	const before = "2026013000.0.0"

	held := s.faults.holding(ConditionOldAPI)

	switch {
	case len(held) == 0:
		return APIVersion
	case held[0].Version == "":
		return before
	default:
		return held[0].Version
	}
}

// tokenNow is a token as conditions leave it; nil when it opens nothing.
func (s *Server) tokenNow(t *Token) *Token {
	for _, c := range []Condition{ConditionTokenRevoked, ConditionTokenExpired} {
		for _, h := range s.faults.holding(c) {
			if h.Token == t.Name {
				return nil
			}
		}
	}

	for _, h := range s.faults.holding(ConditionRole) {
		if h.Token != t.Name {
			continue
		}

		changed := *t
		t = &changed

		if h.Project == "" {
			t.SiloRole = h.Role

			continue
		}

		t.ProjectRoles = maps.Clone(t.ProjectRoles)
		if t.ProjectRoles == nil {
			t.ProjectRoles = map[string]Role{}
		}

		t.ProjectRoles[h.Project] = h.Role
	}

	return t
}

// quota is the silo's, now.
func (s *Server) quota() Quota {
	q := s.cfg.Quota

	for _, h := range s.faults.holding(ConditionQuota) {
		for _, f := range []struct {
			from *int64
			to   *int64
		}{{h.CPUs, &q.CPUs}, {h.Memory, &q.Memory}, {h.Storage, &q.Storage}} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
	}

	return q
}

// waitWhile gives up the lock as long as a condition has it so. Held: s.mu.
func (s *Server) waitWhile(holds func() bool) {
	for s.ctx.Err() == nil {
		changed := s.faults.awaitChange()

		if !holds() {
			return
		}

		s.mu.Unlock()

		select {
		case <-changed:
		case <-s.ctx.Done():
		}

		s.mu.Lock()
	}
}

// isStuck says whether an object is held in a state.
func (s *Server) isStuck(kind, state string, m *meta) bool {
	for _, h := range s.faults.holding(ConditionStuck) {
		if h.Kind == kind && h.State == state && (h.Object == "" || h.Object == m.name || h.Object == m.id) {
			return true
		}
	}

	return false
}

// stuck waits as long as an object is held in a state. Held: s.mu, but given
// up meanwhile.
func (s *Server) stuck(kind, state string, m *meta) {
	s.waitWhile(func() bool { return s.isStuck(kind, state, m) })
}

// stuckDisk waits as long as a disk is held in its state. Held: s.mu, but
// given up meanwhile.
func (s *Server) stuckDisk(d *disk) { s.stuck(kindDisk, string(d.state), &d.meta) }

// detachDisk takes a disk off its instance, now or when it is held no more.
// Held: s.mu.
func (s *Server) detachDisk(d *disk) {
	if !s.isStuck(kindDisk, string(diskDetaching), &d.meta) {
		d.detach()

		return
	}

	d.become(diskDetaching)
	s.spawn(func() {
		s.mu.Lock()
		defer s.mu.Unlock()

		s.stuckDisk(d)

		switch {
		case d.state == diskDetaching:
			d.detach()
		case d.state == diskFaulted && d.on != nil:
			// It has faulted meanwhile; whatever it was attached to lets it go all the same.
			d.detach()
			d.become(diskFaulted)
		}
	})
}

// pantryState of a disk's import server: is it out of reach, and is it known
// to be gone for good.
func (s *Server) pantryState(pantry string, d *disk) (away, gone bool) {
	is := func(c Condition) bool {
		for _, h := range s.faults.holding(c) {
			if h.Pantry != "" && h.Pantry == pantry || h.Disk != "" && (h.Disk == d.name || h.Disk == d.id) {
				return true
			}
		}

		return false
	}

	gone = is(ConditionPantryGone)

	return gone || is(ConditionPantryAway), gone
}

// awaitPantry waits until a disk's import server answers or is known to be
// gone, as a saga does that needs it. Held: s.mu, but given up meanwhile.
func (s *Server) awaitPantry(pantry string, d *disk) (gone bool) {
	s.waitWhile(func() bool {
		away, known := s.pantryState(pantry, d)
		gone = known

		return away && !known
	})

	return gone
}

// choosePantry takes one of those that are in DNS; empty when none is.
func (s *Server) choosePantry(d *disk) string {
	var known []string

	for _, p := range s.cfg.Pantries {
		if _, gone := s.pantryState(p, d); !gone {
			known = append(known, p)
		}
	}

	if len(known) == 0 {
		return ""
	}

	return known[rand.IntN(len(known))]
}

// sledAnswer is the error of a call that needs a sled which does not answer.
func (s *Server) sledAnswer(sl *sled) error {
	for _, h := range s.faults.holding(ConditionSledAway) {
		if sl != nil && h.Sled == sl.Name {
			e := internal()
			e.status = h.status(http.StatusBadGateway)

			return e
		}
	}

	return nil
}

// sledIsOut says whether a sled is known not to answer, so that nothing is
// placed there.
func (s *Server) sledIsOut(sl *sled) bool {
	for _, h := range s.faults.holding(ConditionSledAway) {
		if h.Sled == sl.Name && h.phase == 2 {
			return true
		}
	}

	return false
}

// failSled gives up the instances of a sled.
func (s *Server) failSled(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, i := range s.instances.byID {
		if i.sled != nil && i.sled.Name == name && i.hasVM() {
			s.endVM(i, s.cfg.Latencies.Fail, stateFailed)
		}
	}
}
