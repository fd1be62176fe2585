package rack

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func (r *rig) start(disk string) error {
	return r.client.DiskBulkWriteImportStart(r.t.Context(), oxide.DiskBulkWriteImportStartParams{Disk: oxide.NameOrId(disk)})
}

func (r *rig) stop(disk string) error {
	return r.client.DiskBulkWriteImportStop(r.t.Context(), oxide.DiskBulkWriteImportStopParams{Disk: oxide.NameOrId(disk)})
}

func (r *rig) write(disk string, offset uint64, data []byte) error {
	return r.client.DiskBulkWriteImport(r.t.Context(), oxide.DiskBulkWriteImportParams{
		Disk: oxide.NameOrId(disk),
		Body: &oxide.ImportBlocksBulkWrite{Offset: &offset, Base64EncodedData: base64.StdEncoding.EncodeToString(data)},
	})
}

func (r *rig) finalize(disk, snapshot string) error {
	return r.client.DiskFinalizeImport(r.t.Context(), oxide.DiskFinalizeImportParams{
		Disk: oxide.NameOrId(disk), Body: &oxide.FinalizeDisk{SnapshotName: oxide.Name(snapshot)},
	})
}

func (r *rig) snapshotNamed(name string) (*oxide.Snapshot, error) {
	return r.client.SnapshotView(r.t.Context(), oxide.SnapshotViewParams{Project: demo, Snapshot: oxide.NameOrId(name)})
}

func (r *rig) createImage(project oxide.NameOrId, name, snapshot string) (*oxide.Image, error) {
	return r.client.ImageCreate(r.t.Context(), oxide.ImageCreateParams{Project: project, Body: &oxide.ImageCreate{
		Name: oxide.Name(name), Description: "an image", Os: "talos", Version: "1.13.5",
		Source: oxide.ImageSource{Value: &oxide.ImageSourceSnapshot{Id: snapshot}},
	}})
}

// upload imports data and returns the snapshot.
func (r *rig) upload(name string, size int64, data []byte) *oxide.Snapshot {
	r.t.Helper()

	d := r.disk(name, size, importing())
	must(0, r.start(d.Id))(r.t)

	for at := 0; at < len(data); at += maxBulkWrite {
		must(0, r.write(d.Id, uint64(at), data[at:min(len(data), at+maxBulkWrite)]))(r.t)
	}

	must(0, r.stop(d.Id))(r.t)
	must(0, r.finalize(d.Id, "snap-of-"+name))(r.t)

	return must(r.snapshotNamed("snap-of-" + name))(r.t)
}

func noise(n int) []byte {
	b := make([]byte, n)
	c := rand.NewChaCha8([32]byte{1})
	_, _ = c.Read(b)

	return b
}

func TestDiskLimits(t *testing.T) {
	r := newRig(t)

	for _, tt := range []struct {
		size    int64
		backend oxide.DiskBackend
		ok      bool
	}{
		{gib, blank(0), true},
		{gib - 512, blank(0), false},
		{gib + 512, blank(0), false},
		{0, blank(0), false},
		{1023 * gib, blank(0), true},
		{1024 * gib, blank(0), false},
		{1024 * gib, oxide.DiskBackend{Value: &oxide.DiskBackendLocal{}}, true},
		{gib + 1, oxide.DiskBackend{Value: &oxide.DiskBackendLocal{}}, false},
	} {
		_, err := r.createDisk("d", tt.size, tt.backend)
		if tt.ok {
			must(0, err)(t)
			must(0, r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Project: demo, Disk: "d"}))(t)
		} else {
			wantError(t, err, 400, "InvalidValue", `unsupported value for "size": `)
		}
	}

	for size, ok := range map[int]bool{512: true, 2048: true, 4096: true, 1024: false, 0: false} {
		body := fmt.Sprintf(`{"name":"b%d","description":"","size":%d,"disk_backend":{"type":"distributed","disk_source":{"type":"blank","block_size":%d}}}`, size, gib, size)

		status, e, _ := r.raw("POST", "/v1/disks?project=demo", body)
		if ok != (status == 201) || !ok && (status != 400 || e.ErrorCode != "") {
			t.Errorf("block size %d: %d %+v", size, status, e)
		}
	}
}

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

// Bodies are read as the rack reads them: 400 without a code.
func TestBodiesAreParsedStrictly(t *testing.T) {
	r := newRig(t)

	const rest = `"description":"","size":1073741824,"disk_backend":{"type":"distributed","disk_source":{"type":"blank","block_size":512}}}`

	for _, tt := range []struct {
		body, message string
		status        int
	}{
		{`{"name":"a","more":1,` + rest, "", 201},
		{`{"name":"A",` + rest, "name", 400},
		{`{"name":"0123456789abcdef0123456789abcdef",` + rest, "name", 400},
		{`{"name":"a0000000-0000-4000-8000-000000000000",` + rest, "UUID", 400},
		{`{"name":"` + strings.Repeat("b", 63) + `",` + rest, "", 201},
		{`{"name":"` + strings.Repeat("b", 64) + `",` + rest, "63", 400},
		{`{"name":"b-",` + rest, "end with", 400},
		{`{"name":"b_",` + rest, "invalid character", 400},
		{`{"name":"",` + rest, "at least one", 400},
		{`{"name":1,` + rest, "invalid type: number", 400},
		{`{"Name":"c",` + rest, "missing field `name`", 400},
		{`{` + rest, "missing field `name`", 400},
		{`{"name":"c","size":1073741824}`, "missing field `description`", 400},
		{`{"name":"c","description":null,"size":1}`, "invalid type: null", 400},
		{`{"name":"c","description":"","size":"1"}`, "size", 400},
		{`{"name":"c","description":"","size":1.5}`, "size", 400},
		{`{"name":"c","description":"","size":-1}`, "size", 400},
		{`{"name":"c","description":"","size":9223372036854775808}`, "size", 400},
		{`{"name":"c","description":"","size":1073741824,"disk_backend":null}`, "disk_backend", 400},
		{`{"name":"c","description":"","size":1073741824,"disk_backend":{"type":"other"}}`, "unknown variant", 400},
		{``, "EOF", 400}, {`{`, "expected value", 400}, {`[]`, "invalid type", 400},
		{`{"name":"c","description":"` + strings.Repeat("x", 1<<20) + `"}`, "exceeded maximum size", 400},
	} {
		status, e, _ := r.raw("POST", "/v1/disks?project=demo", tt.body)
		if status != tt.status || e.ErrorCode != "" || !strings.Contains(e.Message, tt.message) {
			t.Errorf("%.80s: %d %+v", tt.body, status, e)
		}
	}

	status, e, _ := r.raw("POST", "/v1/disks?project=demo", `{}`, "Content-Type", "text/plain")
	if status != 400 || !strings.Contains(e.Message, "content type") {
		t.Errorf("text/plain: %d %+v", status, e)
	}
}

// Invariant: an import goes through its states in their order, and no step of
// it can be repeated or left out.
func TestImportStates(t *testing.T) {
	r := newRig(t)
	d := r.disk("d", gib, importing())
	data := noise(512)

	is := func(want string) {
		t.Helper()

		if st := r.diskState(d.Id); st != want {
			t.Fatalf("disk is %s, not %s", st, want)
		}
	}

	refused := func(err error, part string) {
		t.Helper()
		wantError(t, err, 400, "InvalidRequest", part)
	}

	remove := func() error {
		return r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)})
	}

	is("import_ready")
	refused(r.write(d.Id, 0, data), "cannot import blocks with a bulk write for disk in state import_ready")
	refused(r.stop(d.Id), "import_ready")
	refused(remove(), `disk cannot be deleted in state "import_ready"`)

	must(0, r.start(d.Id))(t)
	is("importing_from_bulk_writes")
	refused(r.start(d.Id), "importing_from_bulk_writes")
	refused(r.finalize(d.Id, ""), "cannot finalize disk in state importing_from_bulk_writes")
	refused(remove(), "importing_from_bulk_writes")
	must(0, r.write(d.Id, 0, data))(t)
	must(0, r.write(d.Id, 0, data))(t)

	must(0, r.stop(d.Id))(t)
	is("import_ready")
	must(0, r.start(d.Id))(t)
	must(0, r.stop(d.Id))(t)

	must(0, r.finalize(d.Id, ""))(t)
	is("detached")
	refused(r.finalize(d.Id, ""), "cannot finalize disk in state detached")
	refused(r.start(d.Id), "detached")
	must(0, remove())(t)
}

func TestBulkWriteRules(t *testing.T) {
	r := newRig(t)
	d := r.disk("d", gib, source(0, oxide.DiskSource{Value: &oxide.DiskSourceImportingBlocks{BlockSize: 4096}}))
	must(0, r.start(d.Id))(t)

	for _, tt := range []struct {
		offset uint64
		n      int
		part   string
	}{
		{0, 512 << 10, ""},
		{0, 512<<10 + 4096, "larger than the maximum"},
		{4096, 4096, ""},
		{512, 4096, "offset 512 is not a multiple"},
		{0, 512, "length 512 is not a multiple"},
		{uint64(gib) - 4096, 4096, ""},
		{uint64(gib) - 4096, 8192, "beyond the disk's size"},
		{uint64(gib), 4096, "beyond the disk's size"},
	} {
		err := r.write(d.Id, tt.offset, noise(tt.n))
		if tt.part == "" {
			must(0, err)(t)
		} else {
			wantError(t, err, 400, "InvalidRequest", tt.part)
		}
	}

	path := "/v1/disks/" + d.Id + "/bulk-write"

	for _, tt := range []struct {
		body   string
		status int
		code   string
	}{
		{`{"offset":0,"base64_encoded_data":"!!"}`, 400, "InvalidRequest"},
		{`{"offset":0,"base64_encoded_data":"AA"}`, 400, "InvalidRequest"},
		{`{"offset":-1,"base64_encoded_data":""}`, 400, ""},
		{`{"offset":0}`, 400, ""},
		{`{"offset":"0","base64_encoded_data":""}`, 400, ""},
		{` { "base64_encoded_data" : "" , "offset" : 0 } `, 204, ""},
		{`{"offset":0,"x":[1],"base64_encoded_data":"\u0041A=="}`, 400, "InvalidRequest"}, // one byte
		{`{"offset":18446744073709551615,"base64_encoded_data":""}`, 400, "InvalidRequest"},
		{`{"offset":18446744073709551616,"base64_encoded_data":""}`, 400, ""},
		{`{"offset":0,"base64_encoded_data":"A\nA=="}`, 400, "InvalidRequest"},
		{`{"offset":0,"base64_encoded_data":"` + "A\nA==" + `"}`, 400, ""},
		{strings.Repeat(" ", 8<<20+1), 400, ""},
	} {
		status, e, _ := r.raw("POST", path, tt.body)
		if status != tt.status || e.ErrorCode != tt.code {
			t.Errorf("%.60q: %d %+v", tt.body, status, e)
		}
	}
}

// Invariant: what was uploaded is on the snapshot, the image, and the disks
// made from them, byte for byte, and each goes on without the others.
func TestContentFollowsFromUploadToDisk(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	data := noise(3*maxBulkWrite + 1024)
	clear(data[maxBulkWrite : 2*maxBulkWrite])

	snap := r.upload("up", 2*gib, data)
	if snap.State != oxide.SnapshotStateReady || snap.Size != oxide.ByteCount(2*gib) {
		t.Errorf("snapshot is %+v", snap)
	}

	img := must(r.createImage(demo, "img", snap.Id))(t)
	if img.Size != snap.Size || img.ProjectId == "" || fmt.Sprint(img.BlockSize) != "512" {
		t.Errorf("image is %+v", img)
	}

	must(0, r.client.SnapshotDelete(ctx, oxide.SnapshotDeleteParams{Snapshot: oxide.NameOrId(snap.Id)}))(t)
	must(0, r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Project: demo, Disk: "up"}))(t)

	sum := sha256.Sum256(data)
	if got := must(r.ImageDigest(img.Id, int64(len(data))))(t); got != hex.EncodeToString(sum[:]) {
		t.Errorf("digest of the image is %s", got)
	}

	d := r.disk("boot", 3*gib, ofImage(img.Id))
	must(0, r.client.ImageDelete(ctx, oxide.ImageDeleteParams{Image: oxide.NameOrId(img.Id)}))(t)

	reader, size, err := r.DiskReader(d.Id)
	must(0, err)(t)

	got, err := io.ReadAll(io.NewSectionReader(reader, 0, int64(len(data))+maxBulkWrite))
	must(0, err)(t)

	if size != 3*gib || !bytes.Equal(got[:len(data)], data) || !bytes.Equal(got[len(data):], make([]byte, maxBulkWrite)) {
		t.Errorf("the disk differs from the upload (size %d)", size)
	}

	_, err = r.createDisk("late", 3*gib, ofImage(img.Id))
	wantError(t, err, 404, "ObjectNotFound", "image with id")
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

// A snapshot that can not be made leaves the disk where it was, data included.
func TestFinalizeUnwinds(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Quota.Storage = 3 * gib })
	d := r.disk("d", 2*gib, importing())

	wantError(t, r.finalize(d.Id, "s"), 507, "InsufficientCapacity", "Insufficient capacity: Storage Limit Exceeded")

	if st := r.diskState(d.Id); st != "import_ready" {
		t.Errorf("disk is %s", st)
	}

	must(0, r.finalize(d.Id, ""))(t)
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

func TestSnapshots(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	d := r.disk("d", gib, blank(0))

	create := func(name string, disk oxide.NameOrId) (*oxide.Snapshot, error) {
		return r.client.SnapshotCreate(ctx, oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{
			Name: oxide.Name(name), Description: "", Disk: disk,
		}})
	}

	s := must(create("by-id", oxide.NameOrId(d.Id)))(t)
	must(create("by-name", "d"))(t)

	if s.State != oxide.SnapshotStateReady || s.DiskId != d.Id || r.diskState(d.Id) != "detached" {
		t.Errorf("snapshot is %+v", s)
	}

	_, err := create("by-id", "d")
	wantError(t, err, 400, "ObjectAlreadyExists", `already exists: snapshot "by-id"`)

	_, err = create("x", "none")
	wantError(t, err, 404, "ObjectNotFound", "disk")

	imp := r.disk("imp", gib, importing())
	_, err = create("x", oxide.NameOrId(imp.Id))
	wantError(t, err, 400, "InvalidRequest", "import_ready")

	local := r.disk("local", gib, oxide.DiskBackend{Value: &oxide.DiskBackendLocal{}})
	_, err = create("x", oxide.NameOrId(local.Id))
	wantError(t, err, 400, "InvalidRequest", "local")

	if all := must(r.client.SnapshotListAllPages(ctx, oxide.SnapshotListParams{Project: demo}))(t); len(all) != 2 {
		t.Errorf("%d snapshots", len(all))
	}
}

func TestImages(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Projects = []string{"demo", "other"}
		c.Tokens = []Token{{Value: DefaultToken}, {Value: "limited", SiloRole: RoleLimitedCollaborator}, {Value: "project", ProjectRoles: map[string]Role{"demo": RoleAdmin}}}
	})
	ctx := t.Context()
	snap := r.upload("up", gib, noise(512))
	img := must(r.createImage(demo, "img", snap.Id))(t)
	id := oxide.NameOrId(img.Id)

	_, err := r.createImage(demo, "img", snap.Id)
	wantError(t, err, 400, "ObjectAlreadyExists", `"img"`)

	_, err = r.createImage("other", "img", snap.Id)
	wantError(t, err, 400, "InvalidRequest", "does not belong to this project")

	_, err = r.createImage(demo, "none", img.Id)
	wantError(t, err, 404, "ObjectNotFound", "snapshot")

	for n, status := range map[int]int{64: 201, 65: 500} {
		got, _, _ := r.raw("POST", "/v1/images?project=demo", fmt.Sprintf(
			`{"name":"v%d","description":"","os":"talos","version":%q,"source":{"type":"snapshot","id":%q}}`, n, strings.Repeat("1", n), snap.Id))
		if got != status {
			t.Errorf("version of %d characters: %d", n, got)
		}
	}

	// A role on the project alone does not reach images by ID.
	_, err = r.as("project").ImageView(ctx, oxide.ImageViewParams{Image: id})
	wantError(t, err, 404, "ObjectNotFound", "image with id")
	must(r.as("project").ImageView(ctx, oxide.ImageViewParams{Image: "img", Project: demo}))(t)

	_, err = r.as("limited").ImagePromote(ctx, oxide.ImagePromoteParams{Image: id})
	wantError(t, err, 403, "Forbidden", "")

	p := must(r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: id}))(t)
	if p.ProjectId != "" || p.Id != img.Id {
		t.Errorf("promoted image is %+v", p)
	}

	_, err = r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: id})
	wantError(t, err, 400, "InvalidRequest", "Cannot promote a silo image")

	_, err = r.client.ImageView(ctx, oxide.ImageViewParams{Image: "img", Project: demo})
	wantError(t, err, 404, "ObjectNotFound", "image")
	must(r.client.ImageView(ctx, oxide.ImageViewParams{Image: "img"}))(t)

	// The name is free in the project, and taken in the silo.
	second := must(r.createImage(demo, "img", snap.Id))(t)
	_, err = r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: oxide.NameOrId(second.Id)})
	wantError(t, err, 400, "ObjectAlreadyExists", `"img"`)

	inProject := must(r.client.ImageListAllPages(ctx, oxide.ImageListParams{Project: demo}))(t)
	inSilo := must(r.client.ImageListAllPages(ctx, oxide.ImageListParams{}))(t)

	if len(inProject) != 2 || len(inSilo) != 1 {
		t.Errorf("%d images in the project, %d in the silo", len(inProject), len(inSilo))
	}

	wantError(t, r.as("limited").ImageDelete(ctx, oxide.ImageDeleteParams{Image: id}), 403, "Forbidden", "")

	_, err = r.as("limited").ImageDemote(ctx, oxide.ImageDemoteParams{Image: id, Project: "other"})
	wantError(t, err, 403, "Forbidden", "")

	back := must(r.client.ImageDemote(ctx, oxide.ImageDemoteParams{Image: id, Project: "other"}))(t)
	if back.ProjectId == "" {
		t.Errorf("demoted image is %+v", back)
	}

	_, err = r.client.ImageDemote(ctx, oxide.ImageDemoteParams{Image: id, Project: "other"})
	wantError(t, err, 400, "InvalidRequest", "Cannot demote a project image")
}
