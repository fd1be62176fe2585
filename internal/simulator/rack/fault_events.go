package rack

import (
	"fmt"
	"slices"
)

// perform makes an event happen, out of sight of any caller of the API.
func (s *Server) perform(f Fault) error {
	happens := map[Event]func(string) error{
		EventInstanceCrashed: s.Crash, EventInstanceHalted: s.GuestPowerOff,
		EventInstanceReboot: s.GuestReboot, EventInstanceMigrated: s.Migrate,
	}[f.Event]

	if happens != nil {
		i, err := findAnywhere(s, s.instances, f.Instance)
		if err != nil {
			return err
		}

		return happens(i.id)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	switch f.Event {
	case EventProjectRenamed:
		p, found := s.projects.named("", f.Project)
		if !found {
			return notFound(kindProject, f.Project)
		}

		return s.projects.rename(p, f.To)
	case EventProjectDeleted:
		p, found := s.projects.named("", f.Project)
		if !found {
			return notFound(kindProject, f.Project)
		}

		s.wipeProject(p)

		return nil
	case EventInstanceDeleted:
		i, err := anywhere(s.instances, f.Instance)
		if err != nil {
			return err
		}

		s.wipeInstance(i)

		return nil
	case EventDiskDeleted, EventDiskFaulted:
		return s.spoilDisk(f)
	case EventPantryForgetting:
		return s.forgetVolumes(f)
	default:
		return fmt.Errorf("unknown event %q", f.Event)
	}
}

// anywhere finds an object by ID or, in whatever project, by name. Held: s.mu.
func anywhere[T entity](t *table[T], selector string) (T, error) {
	if x, found := t.get(canonicalID(selector)); found {
		return x, nil
	}

	for scope := range t.ordered {
		if x, found := t.named(scope, selector); found {
			return x, nil
		}
	}

	var none T

	return none, notFound(t.kind, selector)
}

func findAnywhere[T entity](s *Server, t *table[T], selector string) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return anywhere(t, selector)
}

// wipeInstance takes an instance away in whatever state it is, and keeps its
// disks. Held: s.mu.
func (s *Server) wipeInstance(i *instance) {
	i.halt()
	s.release(i)

	for _, d := range slices.Clone(i.disks) {
		d.detach()
	}

	s.dropInstance(i)
	i.intent = intentDestroyed
	i.state = stateStopped // nobody sees it any more: no step, but what was due is void
	i.gen++
}

// wipeProject takes a project away with all that was in it. Held: s.mu.
func (s *Server) wipeProject(p *project) {
	for _, i := range s.instances.in(p.id) {
		s.wipeInstance(i)
	}

	for _, x := range s.snapshots.in(p.id) {
		s.snapshots.remove(x)
		s.freeStorage(x.size, true)
	}

	for _, d := range s.disks.in(p.id) {
		s.dropDisk(d)
	}

	for _, m := range s.images.in(p.id) {
		s.images.remove(m)
	}

	for _, g := range s.groups.in(p.id) {
		s.groups.remove(g)
	}

	for _, f := range s.floating.in(p.id) {
		s.floating.remove(f)
		f.pool.giveWhole(f.addr)
	}

	for _, v := range s.vpcs.in(p.id) {
		for _, n := range s.subnets.in(v.id) {
			s.subnets.remove(n)
		}

		s.vpcs.remove(v)
	}

	s.projects.remove(p)
}

func (s *Server) spoilDisk(f Fault) error {
	d, err := anywhere(s.disks, f.Disk)
	if err != nil {
		return err
	}

	if f.Event == EventDiskFaulted {
		d.become(diskFaulted)

		return nil
	}

	if d.on != nil {
		d.detach()
	}

	s.dropDisk(d)

	return nil
}

// forgetVolumes makes an import server forget what it had: of the disks that
// are pinned to it now, no write comes through any more.
func (s *Server) forgetVolumes(f Fault) error {
	if f.Disk != "" {
		d, err := anywhere(s.disks, f.Disk)
		if err != nil {
			return err
		}

		d.forgotten = true

		return nil
	}

	if !slices.Contains(s.cfg.Pantries, f.Pantry) {
		return fmt.Errorf("pantry is %q: the rack has %q", f.Pantry, s.cfg.Pantries)
	}

	for _, d := range s.disks.byID {
		if d.pantry == f.Pantry {
			d.forgotten = true
		}
	}

	return nil
}
