package rack

// instanceChange says what an instance shall be in full: the call replaces all
// that can be changed.
type instanceChange struct {
	ncpus            int
	memory           int64
	bootDisk         *string // name or ID; nil is none
	policy, platform string
	jumbo            bool
}

// nullable is a required key that may be null.
func (o *object) nullable(key string) {
	if _, has := o.fields[key]; !has {
		o.fail("", "missing field `%s`", key)
	}
}

func (o *object) instanceChange() instanceChange {
	for _, key := range []string{"boot_disk", "auto_restart_policy", "cpu_platform", "enable_jumbo_frames"} {
		o.nullable(key)
	}

	ch := instanceChange{
		ncpus: int(o.number("ncpus", 1<<16-1)), memory: o.bytes("memory"),
		bootDisk: o.optionalText("boot_disk"),
		policy:   o.optionalOneOf("auto_restart_policy", "never", "best_effort"),
		platform: o.optionalOneOf("cpu_platform", "amd_milan", "amd_turin", "amd_turin_v2"),
		jumbo:    o.boolOr("enable_jumbo_frames", false),
	}

	if ch.bootDisk != nil {
		o.checked("boot_disk", *ch.bootDisk, checkNameOrID)
	}

	if _, has := o.value("multicast_groups"); has {
		o.multicastGroups()
	}

	return ch
}

// instanceUpdate changes size, platform and boot disk of an instance that has
// no VM, and the restart policy of any.
func (s *Server) instanceUpdate(c *call) (answer, error) {
	o := parseBody(c.body)
	ch := o.instanceChange()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	i, err := s.findInstance(c, RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if err := s.checkSize(ch.ncpus, ch.memory, ch.jumbo); err != nil {
		return answer{}, err
	}

	boot, err := i.bootDiskOf(s, ch.bootDisk)
	if err != nil {
		return answer{}, err
	}

	if err := i.admits(ch, boot); err != nil {
		return answer{}, err
	}

	i.ncpus, i.memory, i.bootDisk, i.platform, i.jumbo = ch.ncpus, ch.memory, boot, ch.platform, ch.jumbo
	i.touch()

	if i.policy != ch.policy {
		i.policy = ch.policy
		if i.state == stateFailed {
			s.restartLater(i)
		}
	}

	return ok(s.viewInstance(i)), nil
}

// admits wants an instance without a VM for all but its restart policy.
func (i *instance) admits(ch instanceChange, boot string) error {
	switch {
	case i.state == stateStopped || i.state == stateFailed:
		return nil
	case boot != i.bootDisk:
		return conflict("instance must be stopped to set boot disk")
	case ch.ncpus != i.ncpus || ch.memory != i.memory:
		return conflict("instance must be stopped to be resized")
	case ch.platform != i.platform || ch.jumbo != i.jumbo:
		return conflict("instance must be stopped to change its CPU platform or jumbo frames")
	default:
		return nil
	}
}

// bootDiskOf finds a boot disk among the disks that are attached.
func (i *instance) bootDiskOf(s *Server, selector *string) (string, error) {
	if selector == nil {
		return "", nil
	}

	p, found := s.projects.get(i.scope)
	if !found {
		return "", notFound(kindDisk, *selector)
	}

	d, err := resolveIn(s.disks, p, *selector)
	if err != nil {
		return "", err
	}

	if d.on != i {
		return "", conflict("boot disk must be attached")
	}

	return d.id, nil
}
