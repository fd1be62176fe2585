package rack

// maxBulkWrite is the most raw data of one write.
const maxBulkWrite = 512 << 10

const opBulkWrite = "disk_bulk_write_import"

// importDisk resolves the disk of an import call. Held: s.mu.
func (c *call) importDisk() (*disk, error) {
	d, err := resolve(c, c.s.disks, c.path("disk"), RoleLimitedCollaborator)
	if err != nil {
		return nil, err
	}

	if d.local {
		return nil, internal()
	}

	return d, nil
}

func (d *disk) become(st diskState) {
	d.moves(kindDisk, string(d.state), string(st))
	d.state = st
	d.modified = d.now()
}

func (s *Server) bulkWriteStart(c *call) (answer, error) {
	return s.importStep(c, diskImportReady, diskBulkWrites, "cannot set disk in state %s to importing from bulk writes")
}

func (s *Server) bulkWriteStop(c *call) (answer, error) {
	return s.importStep(c, diskBulkWrites, diskImportReady, "cannot stop bulk writes for disk in state %s")
}

// importStep moves a disk between two import states. The import server has no
// part in it.
func (s *Server) importStep(c *call, from, to diskState, refusal string) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	d, err := c.importDisk()
	if err != nil {
		return answer{}, err
	}

	if d.state != from {
		return answer{}, invalidRequest(refusal, d.state)
	}

	d.become(to)

	return noContent(), nil
}

func (s *Server) bulkWrite(c *call) (answer, error) {
	w, err := parseBulkWrite(c.body, c.buffers.data[:])
	if err != nil {
		return answer{}, err
	}

	d, err := c.bulkWriteDisk()
	if err != nil {
		return answer{}, err
	}

	if w.badText != nil {
		return answer{}, invalidRequest("error while decoding base64 data: %v", w.badText)
	}

	n := len(w.data)

	if err := checkBulkWrite(d, w.offset, n); err != nil {
		return answer{}, err
	}

	s.pause(s.cfg.Latencies.BulkWrite)
	d.content.write(int64(w.offset), w.data)

	s.mu.Lock()
	s.bulkBytes += int64(n)
	s.mu.Unlock()

	return noContent(), nil
}

// bulkWriteDisk finds the disk, in a state that takes writes.
func (c *call) bulkWriteDisk() (*disk, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()

	d, err := c.importDisk()
	if err != nil {
		return nil, err
	}

	if d.state != diskBulkWrites {
		return nil, invalidRequest("cannot import blocks with a bulk write for disk in state %s", d.state)
	}

	if away, _ := c.s.pantryState(d.pantry, d); d.pantry == "" || away {
		return nil, internal()
	}

	if d.forgotten {
		return nil, invalidRequest("%s", d.id)
	}

	return d, nil
}

func checkBulkWrite(d *disk, offset uint64, n int) error {
	switch {
	case n > maxBulkWrite:
		return invalidRequest("data length %d larger than the maximum of %d bytes", n, maxBulkWrite)
	case offset%uint64(d.blockSize) != 0:
		return invalidRequest("offset %d is not a multiple of the block size %d", offset, d.blockSize)
	case int64(n)%d.blockSize != 0:
		return invalidRequest("data length %d is not a multiple of the block size %d", n, d.blockSize)
	case offset > uint64(d.size) || uint64(n) > uint64(d.size)-offset:
		return invalidRequest("write of %d bytes at offset %d is beyond the disk's size %d", n, offset, d.size)
	}

	return nil
}

// finalizeImport ends an import, with a snapshot when a name is given. When
// the snapshot can not be made the disk is back in import_ready, its data
// still there.
func (s *Server) finalizeImport(c *call) (answer, error) {
	o := parseBody(c.body)
	name := o.optionalName("snapshot_name")

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	d, err := c.importDisk()
	if err != nil {
		return answer{}, err
	}

	if d.state != diskImportReady || d.pantry == "" {
		return answer{}, invalidRequest("cannot finalize disk in state %s", d.state)
	}

	d.become(diskFinalizing)
	s.awaitPantry(d.pantry, d)

	if name != "" {
		snap, err := s.newSnapshot(d, name, "snapshot of finalized disk "+d.name)
		if err != nil {
			d.become(diskImportReady)

			return answer{}, err
		}

		s.saga(s.cfg.Latencies.SnapshotCreate)
		s.stuck(kindSnapshot, snap.state, &snap.meta)
		snap.ready()
	}

	s.saga(s.cfg.Latencies.Finalize)
	s.stuckDisk(d)

	d.pantry, d.forgotten = "", false
	d.become(diskDetached)

	return noContent(), nil
}
