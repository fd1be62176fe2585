package rack

const (
	snapshotCreating = "creating"
	snapshotReady    = "ready"
	snapshotFaulted  = "faulted"
)

type snapshot struct {
	meta
	diskID          string
	size, blockSize int64
	state           string
	layer           *layer
}

type snapshotView struct {
	identity
	ProjectID string `json:"project_id"`
	DiskID    string `json:"disk_id"`
	Size      int64  `json:"size"`
	State     string `json:"state"`
}

func viewSnapshot(x *snapshot) any {
	return snapshotView{x.identity(), x.scope, x.diskID, x.size, x.state}
}

// newSnapshot charges for a snapshot and makes its record. Held: s.mu.
func (s *Server) newSnapshot(d *disk, name, description string) (*snapshot, error) {
	if err := s.chargeStorage(d.size, true); err != nil {
		return nil, err
	}

	x := &snapshot{
		meta: newMeta(s, d.scope, name, description), diskID: d.id, size: d.size, blockSize: d.blockSize,
		state: snapshotCreating, layer: d.content.freeze(),
	}

	err := fitsColumn(description, maxDescription)
	if err == nil {
		err = s.snapshots.add(x)
	}

	if err != nil {
		s.freeStorage(d.size, true)

		return nil, err
	}

	return x, nil
}

func (x *snapshot) ready() {
	x.moves(kindSnapshot, x.state, snapshotReady)
	x.state = snapshotReady
	x.modified = x.now()
}

func (s *Server) snapshotCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	name, description, selector := o.name("name"), o.text("description"), o.nameOrID("disk")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.queryProject(RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	d, err := resolveIn(s.disks, p, selector)
	if err != nil {
		return answer{}, err
	}

	if err := d.canSnapshot(); err != nil {
		return answer{}, err
	}

	x, err := s.newSnapshot(d, name, description)
	if err != nil {
		return answer{}, err
	}

	// A detached disk goes through an import server for as long; an attached
	// one through its VM.
	if d.state == diskDetached {
		d.become(diskMaintenance)
		s.saga(s.cfg.Latencies.SnapshotCreate)
		s.stuckDisk(d)
		d.become(diskDetached)
	} else {
		s.saga(s.cfg.Latencies.SnapshotCreate)
	}

	s.stuck(kindSnapshot, x.state, &x.meta)
	x.ready()

	return created(viewSnapshot(x)), nil
}

func (d *disk) canSnapshot() error {
	switch {
	case d.local:
		return invalidRequest("cannot snapshot local disk")
	case d.readOnly:
		return invalidRequest("cannot snapshot read-only disk")
	case d.state == diskMaintenance:
		return conflict("volume is locked: another snapshot or repair is in progress")
	case d.state != diskDetached && d.state != diskAttached:
		return invalidRequest("cannot snapshot disk in state %s", d.state)
	}

	return nil
}

func (s *Server) snapshotDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	x, err := resolve(c, s.snapshots, c.path("snapshot"), RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	if x.state != snapshotReady && x.state != snapshotFaulted {
		return answer{}, invalidRequest("snapshot cannot be deleted in state %s", x.state)
	}

	s.snapshots.remove(x)
	s.saga(s.cfg.Latencies.SnapshotDelete)
	s.freeStorage(x.size, true)

	return noContent(), nil
}
