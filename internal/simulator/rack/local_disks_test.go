package rack

import (
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func local() oxide.DiskBackend { return oxide.DiskBackend{Value: &oxide.DiskBackendLocal{}} }

func localDisk(name string, size int64) oxide.InstanceDiskAttachment {
	return oxide.InstanceDiskAttachment{Value: &oxide.InstanceDiskAttachmentCreate{
		Name: oxide.Name(name), Size: oxide.ByteCount(size), DiskBackend: local(),
	}}
}

// A local disk has blocks of 4096 bytes, may be larger than a distributed one,
// and has no import and no snapshots.
func TestLocalDisks(t *testing.T) {
	r := newRig(t)
	d := r.disk("l", 1024*gib, local())
	ctx := t.Context()

	v := must(r.client.DiskView(ctx, oxide.DiskViewParams{Disk: oxide.NameOrId(d.Id)}))(t)
	if v.BlockSize != 4096 || v.DiskType != oxide.DiskTypeLocal || v.DevicePath != "/mnt/l" || r.diskState(d.Id) != "detached" {
		t.Errorf("disk is %+v", v)
	}

	wantError(t, r.start(d.Id), 500, "Internal", "")
	wantError(t, r.write(d.Id, 0, noise(4096)), 500, "Internal", "")
	wantError(t, r.stop(d.Id), 500, "Internal", "")
	wantError(t, r.finalize(d.Id, ""), 500, "Internal", "")

	_, err := r.client.SnapshotCreate(ctx, oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "s", Disk: "l"}})
	wantError(t, err, 400, "InvalidRequest", "local")

	if u := must(r.client.UtilizationView(ctx))(t); u.Provisioned.Storage != oxide.ByteCount(1024*gib) {
		t.Errorf("charged is %+v", u.Provisioned)
	}

	must(0, r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)}))(t)
}

// Space is claimed when an instance first starts with the disk, on one sled:
// there it stays, and the instance with it, until the disk is deleted.
func TestLocalDisksHoldTheirSled(t *testing.T) {
	r := newRig(t, onlyVMs, func(c *Config) {
		c.Sleds = DefaultSleds(2)
		for n := range c.Sleds {
			c.Sleds[n].LocalStorage = 10 * gib
		}
	})
	with := func(size int64, name string) func(*oxide.InstanceCreate) {
		return func(b *oxide.InstanceCreate) { b.Disks = []oxide.InstanceDiskAttachment{localDisk(name, size)} }
	}
	a, b, c := r.instance("a", with(10*gib, "da")), r.instance("b", with(6*gib, "db")), r.instance("c", with(5*gib, "dc"))
	small, big := r.instance("small", with(4*gib, "ds")), r.instance("big", with(11*gib, "dx"))

	wantError(t, r.startInstance(big.Id), 507, "InsufficientCapacity", "Failed to place instance")
	must(0, r.startInstance(a.Id))(t)
	must(0, r.startInstance(b.Id))(t)
	wantError(t, r.startInstance(c.Id), 507, "InsufficientCapacity", "Failed to place instance")
	must(0, r.startInstance(small.Id))(t)

	onA, onB := r.inspect(a.Id).Sled, r.inspect(b.Id).Sled
	if onA == onB || r.inspect(small.Id).Sled != onB {
		t.Errorf("they run on %s, %s and %s", onA, onB, r.inspect(small.Id).Sled)
	}

	// A stop leaves the claim, a delete of the disk ends it.
	must(0, r.stopInstance(a.Id))(t)
	r.reaches(a.Id, oxide.InstanceStateStopped)
	wantError(t, r.startInstance(c.Id), 507, "InsufficientCapacity", "Failed to place instance")
	must(0, r.startInstance(a.Id))(t)

	if on := r.inspect(a.Id).Sled; on != onA {
		t.Errorf("its disk is on %s, it runs on %s", onA, on)
	}

	must(0, r.stopInstance(a.Id))(t)
	r.reaches(a.Id, oxide.InstanceStateStopped)
	must(0, r.deleteInstance(a.Id))(t)
	must(0, r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Project: demo, Disk: "da"}))(t)
	must(0, r.startInstance(c.Id))(t)
}
