package rack

// diskSpec is what a create call asks for.
type diskSpec struct {
	name, description string
	size, blockSize   int64
	local, readOnly   bool
	source, sourceID  string
}

func (o *object) diskSpec() diskSpec {
	d := diskSpec{name: o.name("name"), description: o.text("description"), size: o.bytes("size")}
	backend := o.child("disk_backend")

	if backend.oneOf("type", "local", "distributed") == "local" {
		d.local, d.source, d.blockSize = true, "blank", localBlock
		o.adopt(backend)

		return d
	}

	src := backend.child("disk_source")
	d.source = src.oneOf("type", "blank", "snapshot", "image", "importing_blocks")

	switch d.source {
	case "snapshot", "image":
		d.sourceID = src.id(d.source + "_id")
		d.readOnly = src.boolOr("read_only", false)
	default:
		n := src.number("block_size", 1<<32-1)
		if src.err == nil && n != 512 && n != 2048 && n != 4096 {
			src.fail("block_size", "invalid block size: %d", n)
		}

		d.blockSize = int64(n)
	}

	backend.adopt(src)
	o.adopt(backend)

	return d
}

func checkDiskSize(spec diskSpec) error {
	switch {
	case spec.size < gib:
		return invalidValue("size", "total size must be at least %d GiB", 1)
	case spec.size%gib != 0:
		return invalidValue("size", "total size must be a multiple of %d GiB", 1)
	case !spec.local && spec.size > maxDistributed:
		return invalidValue("size", "total size must be less than %d GiB", maxDistributed/gib+1)
	}

	return nil
}

// diskSource finds what a disk is made from, and takes over its block size.
func (s *Server) diskSource(c *call, p *project, d *disk, spec diskSpec) (*layer, error) {
	var (
		size int64
		base *layer
	)

	switch spec.source {
	case "snapshot":
		snap, err := resolveID(c, s.snapshots, spec.sourceID, RoleViewer)
		if err != nil {
			return nil, err
		}

		if snap.scope != p.id {
			return nil, invalidRequest("snapshot does not belong to this project")
		}

		d.snapshotID, d.blockSize, size, base = snap.id, snap.blockSize, snap.size, snap.layer
	case "image":
		img, err := c.imageByID(spec.sourceID)
		if err != nil {
			return nil, err
		}

		if img.scope != "" && img.scope != p.id {
			return nil, invalidRequest("image does not belong to this project")
		}

		d.imageID, d.blockSize, size, base = img.id, img.blockSize, img.size, img.layer
	default:
		return nil, nil
	}

	switch {
	case spec.size < size:
		return nil, invalidRequest("disk size %d must be greater than or equal to %s size of %d bytes", spec.size, spec.source, size)
	case spec.readOnly && spec.size != size:
		return nil, invalidRequest("read-only disk size %d must be equal to %s size of %d bytes", spec.size, spec.source, size)
	}

	return base, nil
}
