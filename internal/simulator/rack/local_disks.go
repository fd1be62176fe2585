package rack

// A local disk is space on one sled. It is charged to the silo when it is made,
// but finds its place only when an instance starts with it, and stays there:
// such an instance starts on that sled or on none, and does not migrate.

// localClaim is the space that an instance's local disks want on a sled; false
// when one of them has its space on another.
func (i *instance) localClaim(sl *sled) (size int64, here bool) {
	for _, d := range i.disks {
		switch {
		case !d.local:
		case d.claimed == nil:
			size += d.size
		case d.claimed != sl:
			return 0, false
		}
	}

	return size, true
}

// claimLocal gives an instance's local disks their place.
func (i *instance) claimLocal(sl *sled) {
	for _, d := range i.disks {
		if d.local && d.claimed == nil {
			d.claimed = sl
			sl.local += d.size
		}
	}
}

func (i *instance) hasLocal() bool {
	for _, d := range i.disks {
		if d.local {
			return true
		}
	}

	return false
}
