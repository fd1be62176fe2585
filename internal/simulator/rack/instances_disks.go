package rack

import "slices"

// instanceDiskAttach needs an instance that is stopped; instanceDiskDetach makes
// do with a failed one.
func (s *Server) instanceDiskAttach(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, d, err := s.instanceAndDisk(c, stateStopped)
	if err != nil {
		return answer{}, err
	}

	switch {
	case d.on == i:
		return accepted(viewDisk(d)), nil
	case len(i.disks) >= maxDisks:
		return answer{}, invalidRequest("cannot attach more than %d disks to an instance", maxDisks)
	}

	if err := d.attach(i); err != nil {
		return answer{}, err
	}

	return accepted(viewDisk(d)), nil
}

func (s *Server) instanceDiskDetach(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	i, d, err := s.instanceAndDisk(c, stateStopped, stateFailed)
	if err != nil {
		return answer{}, err
	}

	switch {
	case d.on != i:
		return answer{}, invalidRequest("cannot detach disk %q: disk is not attached to instance", d.name)
	case d.id == i.bootDisk:
		return answer{}, conflict("boot disk cannot be detached")
	}

	s.detachDisk(d)

	return accepted(viewDisk(d)), nil
}

func (s *Server) instanceAndDisk(c *call, in ...runState) (*instance, *disk, error) {
	o := parseBody(c.body)
	selector := o.nameOrID("disk")

	if o.err != nil {
		return nil, nil, o.err
	}

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return nil, nil, err
	}

	p, found := s.projects.get(i.scope)
	if !found {
		return nil, nil, notFound(kindDisk, selector)
	}

	d, err := resolveIn(s.disks, p, selector)
	if err != nil {
		return nil, nil, err
	}

	if !slices.Contains(in, i.state) {
		return nil, nil, invalidRequest("cannot attach or detach disk %q: instance is %s, it must be stopped", d.name, i.state)
	}

	return i, d, nil
}
