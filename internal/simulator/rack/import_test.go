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
