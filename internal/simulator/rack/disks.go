package rack

import (
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
)

const (
	maxDistributed = 1023 * gib
	localBlock     = 4096
)

type diskState string

const (
	diskCreating    diskState = "creating"
	diskDetached    diskState = "detached"
	diskImportReady diskState = "import_ready"
	diskBulkWrites  diskState = "importing_from_bulk_writes"
	diskFinalizing  diskState = "finalizing"
	diskMaintenance diskState = "maintenance"
	diskDetaching   diskState = "detaching" // only while a fault holds it there
	diskAttached    diskState = "attached"
	diskFaulted     diskState = "faulted"
)

type disk struct {
	meta
	size, blockSize int64
	local           bool
	claimed         *sled // where a local disk has its space, once it was started with
	readOnly        bool
	source          string // blank, snapshot, image or importing_blocks
	snapshotID      string
	imageID         string
	state           diskState
	on              *instance // set while attached
	pantry          string    // the import server that holds the disk, if one does
	forgotten       bool      // its import server knows it no more
	content         *content
	store           *guest.Store // what a guest keeps on the disk
}

type diskStateView struct {
	State    diskState `json:"state"`
	Instance string    `json:"instance,omitempty"`
}

type diskView struct {
	identity
	ProjectID  string        `json:"project_id"`
	Size       int64         `json:"size"`
	BlockSize  int64         `json:"block_size"`
	State      diskStateView `json:"state"`
	DevicePath string        `json:"device_path"`
	DiskType   string        `json:"disk_type"`
	ReadOnly   bool          `json:"read_only"`
	ImageID    *string       `json:"image_id"`
	SnapshotID *string       `json:"snapshot_id"`
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}

	return &s
}

func viewDisk(d *disk) any {
	v := diskView{
		identity: d.identity(), ProjectID: d.scope, Size: d.size, BlockSize: d.blockSize,
		State: diskStateView{State: d.state}, DevicePath: "/mnt/" + d.name,
		DiskType: "distributed", ReadOnly: d.readOnly,
		ImageID: orNull(d.imageID), SnapshotID: orNull(d.snapshotID),
	}
	if d.local {
		v.DiskType = "local"
	}

	// One that has faulted does not tell what it was attached to.
	if d.on != nil && (d.state == diskAttached || d.state == diskDetaching) {
		v.State.Instance = d.on.id
	}

	return v
}

// newDisk judges a spec, charges for it and makes the record, in state
// creating. Held: s.mu.
func (s *Server) newDisk(c *call, p *project, spec diskSpec) (*disk, error) {
	d := &disk{
		meta: newMeta(s, p.id, spec.name, spec.description), size: spec.size, blockSize: spec.blockSize,
		local: spec.local, readOnly: spec.readOnly, source: spec.source, state: diskCreating, store: guest.NewStore(),
	}

	base, err := s.diskSource(c, p, d, spec)
	if err != nil {
		return nil, err
	}

	if err := checkDiskSize(spec); err != nil {
		return nil, err
	}

	d.content = newContent(d.size, base, s.cfg.Content)

	if err := s.chargeStorage(d.size, !d.local); err != nil {
		return nil, err
	}

	err = fitsColumn(d.description, maxDescription)
	if err == nil {
		err = s.disks.add(d)
	}

	if err != nil {
		s.freeStorage(d.size, !d.local)

		return nil, err
	}

	return d, nil
}

// readyDisk ends a disk's creation. Held: s.mu.
func (s *Server) readyDisk(d *disk) {
	if d.source == "importing_blocks" {
		d.become(diskImportReady)
	} else {
		d.become(diskDetached)
	}
}

// dropDisk takes a disk away with all it costs. Held: s.mu.
func (s *Server) dropDisk(d *disk) {
	if _, here := s.disks.get(d.id); !here {
		return // an event was quicker
	}

	s.disks.remove(d)
	s.freeDisk(d)
}

// freeDisk gives back what a disk takes. Held: s.mu.
func (s *Server) freeDisk(d *disk) {
	s.freeStorage(d.size, !d.local)

	if d.claimed != nil {
		d.claimed.local -= d.size
		d.claimed = nil
	}
}

func (s *Server) diskCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	spec := o.diskSpec()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.queryProject(RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	d, err := s.newDisk(c, p, spec)
	if err != nil {
		return answer{}, err
	}

	// The answer is the record as it was first inserted: it says creating
	// although the disk is ready when the answer leaves.
	v := viewDisk(d)

	if spec.source == "importing_blocks" {
		// The state shows before the import server has taken the disk.
		s.saga(s.cfg.Latencies.DiskCreate / 2)
		s.stuckDisk(d)
		s.readyDisk(d)
		s.saga(s.cfg.Latencies.DiskCreate / 2)

		// One at random, and never another one after that.
		pantry := s.choosePantry(d)
		if pantry == "" || s.awaitPantry(pantry, d) {
			s.dropDisk(d)

			return answer{}, internal()
		}

		d.pantry = pantry
	} else {
		s.saga(s.cfg.Latencies.DiskCreate)
		s.stuckDisk(d)
		s.readyDisk(d)
	}

	return created(v), nil
}

// comeBack is the undoing of a deletion that failed: the disk is there again
// under another name, and can be deleted by its ID. Held: s.mu.
func (s *Server) comeBack(d *disk) error {
	d.name = "deleted-" + d.id
	d.become(diskFaulted)

	if err := s.disks.add(d); err != nil {
		return err
	}

	return internal()
}

func (s *Server) diskDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	d, err := resolve(c, s.disks, c.path("disk"), RoleLimitedCollaborator)
	if err != nil {
		return answer{}, err
	}

	switch {
	case d.on != nil:
		return answer{}, invalidRequest("disk is attached")
	case d.state != diskDetached && d.state != diskFaulted:
		return answer{}, invalidRequest("disk cannot be deleted in state %q", string(d.state))
	}

	// The record is gone at once; what it cost is freed when the saga ends.
	s.disks.remove(d)
	s.saga(s.cfg.Latencies.DiskDelete)

	if c.fault.Action == ActionFaultDelete {
		return answer{}, s.comeBack(d)
	}

	s.freeDisk(d)

	return noContent(), nil
}
