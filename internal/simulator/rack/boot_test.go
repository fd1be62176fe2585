package rack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// watched tells how real guests ended.
type watched struct{ ends chan guest.Exit }

func (w watched) Boot(ctx context.Context, hw guest.Hardware, log *zap.Logger) guest.Exit {
	e := Guests{}.Boot(ctx, hw, log)
	w.ends <- e

	return e
}

// uploadImage imports an image as a provider does: only chunks that are not
// zero, and rounded up to whole GiB.
func (r *rig) uploadImage(name string, image io.ReaderAt, size int64) *oxide.Image {
	r.t.Helper()

	d := r.disk(name, (size+gib-1)/gib*gib, importing())
	must(0, r.start(d.Id))(r.t)

	buf := make([]byte, maxBulkWrite)

	for at := int64(0); at < size; at += maxBulkWrite {
		n, err := image.ReadAt(buf[:min(maxBulkWrite, size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			r.t.Fatal(err)
		}

		if !bytes.Equal(buf[:n], zeros[:n]) {
			must(0, r.write(d.Id, uint64(at), buf[:n]))(r.t)
		}
	}

	must(0, r.stop(d.Id))(r.t)
	must(0, r.finalize(d.Id, "snap-of-"+name))(r.t)

	return must(r.createImage(demo, name, must(r.snapshotNamed("snap-of-"+name))(r.t).Id))(r.t)
}

// A Talos image that was uploaded boots from a larger disk made from it; a
// blank disk ends in the firmware, with its instance running.
func TestUploadedImageBoots(t *testing.T) {
	const size = 24 << 20

	ends := make(chan guest.Exit, 1)
	r := newRig(t, func(c *Config) { c.Booter = watched{ends} })

	image := must(talosimage.New(talosimage.Descriptor{Talos: "1.13.5", Schematic: "abc", Arch: "amd64", Platform: "nocloud"}, size, talosimage.Content{Seed: 1}))(t)
	uploaded := r.uploadImage("talos", image, size)

	boot := func(name string, backend oxide.DiskBackend) *oxide.Instance {
		return r.instance(name, func(b *oxide.InstanceCreate) {
			b.Start = nil
			b.BootDisk = oxide.InstanceDiskAttachment{Value: &oxide.InstanceDiskAttachmentCreate{
				Name: oxide.Name(name + "-boot"), Size: oxide.ByteCount(10 * gib), DiskBackend: backend,
			}}
		})
	}

	good := boot("good", ofImage(uploaded.Id))
	r.reaches(good.Id, oxide.InstanceStateRunning)

	disk, diskSize, err := r.DiskReader(good.BootDiskId)
	must(0, err)(t)

	if d := must(talosimage.Verify(disk, diskSize, 1))(t); d.Talos != "1.13.5" {
		t.Errorf("the boot disk holds %+v", d)
	}

	must(0, r.stopInstance(good.Id))(t)

	if e := <-ends; e != guest.ExitStopped {
		t.Errorf("the guest of a good image ended with %d", e)
	}

	empty := boot("empty", blank(0))

	if e := <-ends; e != guest.ExitFailed {
		t.Errorf("the guest of a blank disk ended with %d", e)
	}

	if st := r.runState(empty.Id); st != oxide.InstanceStateRunning {
		t.Errorf("its instance is %s", st)
	}
}
