package rack

import (
	"slices"
	"strings"

	"go.uber.org/zap"
)

// creation is the saga of an instance on its way: what it has done can be
// undone in reverse order.
type creation struct {
	s    *Server
	c    *call
	p    *project
	spec instanceSpec
	i    *instance
	undo []func()
}

func (s *Server) instanceCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	spec := o.instanceSpec()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.queryProject(RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if err := spec.check(s); err != nil {
		return answer{}, err
	}

	cr := &creation{s: s, c: c, p: p, spec: spec}
	if err := cr.run(); err != nil {
		for n := len(cr.undo) - 1; n >= 0; n-- {
			cr.undo[n]()
		}

		return answer{}, err
	}

	if spec.start {
		// The instance exists: that it could not be started is not told here.
		if err := s.start(cr.i); err != nil {
			s.log.Info("instance was created but not started", zap.String("oxide.instance.id", cr.i.id), zap.Error(err))
		}

		s.saga(s.cfg.Latencies.InstanceStart)
	}

	return created(s.viewInstance(cr.i)), nil
}

// run does the steps in the rack's order; the lock is given up between them
// for the saga's time.
func (cr *creation) run() error {
	steps := []func() error{
		cr.record, cr.sshKeys, cr.antiAffinity, cr.interfaces, cr.snat, cr.externalIPs, cr.pass,
		cr.disks, cr.pass, cr.attach,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}

	cr.i.become(stateStopped)

	return nil
}

func (cr *creation) pass() error {
	cr.s.saga(cr.s.cfg.Latencies.InstanceCreate / 2)

	return nil
}

func (cr *creation) record() error {
	spec := cr.spec
	cr.i = &instance{
		meta:  newMeta(cr.s, cr.p.id, spec.name, spec.description),
		ncpus: spec.ncpus, memory: spec.memory, hostname: spec.hostname, userData: spec.userData,
		policy: spec.policy, platform: spec.platform, jumbo: spec.jumbo,
		state: stateCreating, stateTime: cr.s.clock.Now().UTC(), intent: intentStopped,
	}

	if err := fitsColumn(spec.description, maxDescription); err != nil {
		return err
	}

	if err := cr.s.instances.add(cr.i); err != nil {
		return err
	}

	cr.undo = append(cr.undo, func() { cr.s.dropInstance(cr.i) })

	return nil
}

func (cr *creation) sshKeys() error {
	if cr.spec.allKeys {
		cr.i.keys = cr.s.keys.in(cr.c.user.id)
		slices.SortFunc(cr.i.keys, func(a, b *sshKey) int { return strings.Compare(a.name, b.name) })

		return nil
	}

	for _, selector := range cr.spec.keys {
		k, err := cr.c.findSSHKey(selector)
		if err != nil {
			return err
		}

		cr.i.keys = append(cr.i.keys, k)
	}

	return nil
}

func (cr *creation) antiAffinity() error {
	if len(cr.spec.groups) > maxGroups {
		return invalidRequest("an instance may be a member of at most %d anti-affinity groups", maxGroups)
	}

	for _, selector := range cr.spec.groups {
		g, err := resolveIn(cr.s.groups, cr.p, selector)
		if err != nil {
			return err
		}

		if err := g.join(cr.i); err != nil {
			return err
		}
	}

	return nil
}

func (cr *creation) interfaces() error {
	for _, n := range cr.spec.nics {
		if _, err := cr.s.addNIC(cr.i, n); err != nil {
			return err
		}
	}

	return nil
}

// snat takes a slice of an address for every instance that speaks IPv4, whether
// it has an external address of its own or not.
func (cr *creation) snat() error {
	if len(cr.i.nics) == 0 || !cr.i.nics[0].v4.IsValid() {
		return nil
	}

	p, err := cr.s.defaultPool("v4")
	if err != nil {
		return err
	}

	ip, err := p.takeSNAT()
	if err != nil {
		return err
	}

	cr.i.ips = append(cr.i.ips, ip)

	return nil
}

func (cr *creation) externalIPs() error {
	for _, want := range cr.spec.ips {
		if want.ephemeral {
			had := len(cr.i.ips)

			ip, err := cr.s.addEphemeral(cr.i, want.pool)
			if err == nil && len(cr.i.ips) == had {
				err = invalidRequest("An instance may not have more than 1 ephemeral IP%s address", ip.pool.version)
			}

			if err != nil {
				return err
			}

			continue
		}

		f, err := resolveIn(cr.s.floating, cr.p, want.floating)
		if err != nil {
			return err
		}

		if err := f.attach(cr.i); err != nil {
			return err
		}
	}

	return nil
}

// wanted are all disks in order of attachment.
func (cr *creation) wanted() []diskAttachment {
	if cr.spec.boot == nil {
		return cr.spec.disks
	}

	return append([]diskAttachment{*cr.spec.boot}, cr.spec.disks...)
}

func (cr *creation) disks() error {
	for _, w := range cr.wanted() {
		if !w.create {
			continue
		}

		d, err := cr.s.newDisk(cr.c, cr.p, w.spec)
		if err != nil {
			return err
		}

		cr.undo = append(cr.undo, func() { cr.s.dropDisk(d) })

		cr.s.stuckDisk(d)
		cr.s.readyDisk(d)
	}

	return nil
}

func (cr *creation) attach() error {
	for n, w := range cr.wanted() {
		d, found := cr.s.disks.named(cr.p.id, w.name)
		if !found {
			return notFound(kindDisk, w.name)
		}

		if err := d.attach(cr.i); err != nil {
			return err
		}

		cr.undo = append(cr.undo, d.detach)

		if n == 0 && cr.spec.boot != nil {
			cr.i.bootDisk = d.id
		}
	}

	return nil
}

func (d *disk) attach(i *instance) error {
	switch {
	case d.on != nil:
		return invalidRequest("cannot attach disk %q: disk is attached to another instance", d.name)
	case d.state != diskDetached && d.state != diskCreating:
		return invalidRequest("cannot attach disk %q: invalid state %s", d.name, d.state)
	}

	d.on = i
	i.disks = append(i.disks, d)
	d.become(diskAttached)

	return nil
}

func (d *disk) detach() {
	d.on.disks = slices.DeleteFunc(d.on.disks, func(x *disk) bool { return x == d })
	d.on = nil
	d.become(diskDetached)
}
