package rack

import (
	"fmt"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func TestDiskAnswers(t *testing.T) {
	r := newRig(t)

	d := r.disk("d", gib, blank(0))
	if d.State.State() != oxide.DiskStateStateCreating || d.DevicePath != "/mnt/d" || fmt.Sprint(d.BlockSize) != "512" {
		t.Errorf("created disk is %+v", d)
	}

	if st := r.diskState(d.Id); st != "detached" {
		t.Errorf("then it is %s", st)
	}

	_, err := r.createDisk("d", gib, blank(0))
	wantError(t, err, 400, "ObjectAlreadyExists", `already exists: disk "d"`)

	local := r.disk("local", gib, oxide.DiskBackend{Value: &oxide.DiskBackendLocal{}})
	if fmt.Sprint(local.BlockSize) != "4096" || local.DiskType != oxide.DiskTypeLocal {
		t.Errorf("local disk is %+v", local)
	}

	wantError(t, r.start(local.Id), 500, "Internal", "")

	must(0, r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)}))(t)
	wantError(t, r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)}), 404, "ObjectNotFound", "disk with id")
	r.disk("d", gib, blank(0))
}

func TestSelectors(t *testing.T) {
	r := newRig(t)
	d := r.disk("d", gib, blank(0))

	for _, tt := range []struct {
		path    string
		status  int
		code    string
		message string
	}{
		{"/v1/disks/" + d.Id, 200, "", ""},
		{"/v1/disks/" + strings.ToUpper(d.Id), 200, "", ""},
		{"/v1/disks/d?project=demo", 200, "", ""},
		{"/v1/disks/" + d.Id + "?project=demo", 400, "InvalidRequest", "when providing disk as an ID project should not be specified"},
		{"/v1/disks/d", 400, "InvalidRequest", "disk should either be UUID or project should be specified"},
		{"/v1/disks/D?project=demo", 400, "", "bad parameter in URL path"},
		{"/v1/disks/e?project=demo", 404, "ObjectNotFound", `not found: disk with name "e"`},
		{"/v1/disks/d?project=none", 404, "ObjectNotFound", `not found: project with name "none"`},
		{"/v1/instances/i", 400, "InvalidRequest", "instance should either be UUID"},
		{"/v1/snapshots/s", 400, "InvalidRequest", "snapshot should either be UUID"},
		{"/v1/images/i", 404, "ObjectNotFound", `not found: silo-image with name "i"`},
		{"/v1/images/" + d.Id + "?project=demo", 400, "InvalidRequest", "when providing image as an ID"},
	} {
		status, e, _ := r.raw("GET", tt.path, "")
		if status != tt.status || e.ErrorCode != tt.code || !strings.Contains(e.Message, tt.message) {
			t.Errorf("%s: %d %+v", tt.path, status, e)
		}
	}
}

func TestDiskSources(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Projects = []string{"demo", "other"} })
	ctx := t.Context()
	snap := r.upload("up", 2*gib, noise(512))
	img := must(r.createImage(demo, "img", snap.Id))(t)

	for _, backend := range []oxide.DiskBackend{ofSnapshot(snap.Id), ofImage(img.Id)} {
		_, err := r.createDisk("small", gib, backend)
		wantError(t, err, 400, "InvalidRequest", "must be greater than or equal to")

		_, err = r.client.DiskCreate(ctx, oxide.DiskCreateParams{Project: "other", Body: &oxide.DiskCreate{
			Name: "x", Size: oxide.ByteCount(2 * gib), DiskBackend: backend,
		}})
		wantError(t, err, 400, "InvalidRequest", "does not belong to this project")
	}

	readOnly := source(0, oxide.DiskSource{Value: &oxide.DiskSourceImage{ImageId: img.Id, ReadOnly: oxide.NewPointer(true)}})
	_, err := r.createDisk("ro", 3*gib, readOnly)
	wantError(t, err, 400, "InvalidRequest", "must be equal")

	ro := r.disk("ro", 2*gib, readOnly)
	_, err = r.client.SnapshotCreate(ctx, oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: "s", Disk: oxide.NameOrId(ro.Id)}})
	wantError(t, err, 400, "InvalidRequest", "read-only")

	must(r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: oxide.NameOrId(img.Id)}))(t)
	must(r.client.DiskCreate(ctx, oxide.DiskCreateParams{Project: "other", Body: &oxide.DiskCreate{
		Name: "x", Size: oxide.ByteCount(2 * gib), DiskBackend: ofImage(img.Id),
	}}))(t)
}

// Disks and snapshots are both charged, images are not.
func TestStorageQuota(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Quota.Storage = 4 * gib })
	ctx := t.Context()
	snap := r.upload("up", 2*gib, noise(512))
	img := must(r.createImage(demo, "img", snap.Id))(t)

	used := func() int64 {
		return int64(must(r.client.UtilizationView(ctx))(t).Provisioned.Storage)
	}

	if n := used(); n != 4*gib {
		t.Errorf("%d bytes charged", n)
	}

	_, err := r.createDisk("d", gib, blank(0))
	wantError(t, err, 507, "InsufficientCapacity", "Storage Limit Exceeded")

	must(0, r.client.SnapshotDelete(ctx, oxide.SnapshotDeleteParams{Snapshot: oxide.NameOrId(snap.Id)}))(t)
	must(0, r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Project: demo, Disk: "up"}))(t)
	r.disk("d", 4*gib, ofImage(img.Id))

	if n := used(); n != 4*gib {
		t.Errorf("%d bytes charged in the end", n)
	}
}

func TestRackStorage(t *testing.T) {
	r := newRig(t, func(c *Config) { c.RackStorage = 6 * gib })
	r.disk("a", 2*gib, blank(0))

	_, err := r.createDisk("b", gib, blank(0))
	wantError(t, err, 507, "InsufficientCapacity", "Insufficient capacity: Not enough storage")
}
