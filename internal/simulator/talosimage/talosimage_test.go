package talosimage_test

import (
	"bytes"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

func descriptor() talosimage.Descriptor {
	return talosimage.Descriptor{
		Talos: "1.13.5", Schematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba",
		Arch: "amd64", Platform: "nocloud", KernelArgs: []string{"console=ttyS0"},
	}
}

func mustNew(t testing.TB, d talosimage.Descriptor, size int64, c talosimage.Content) *talosimage.Image {
	t.Helper()

	img, err := talosimage.New(d, size, c)
	if err != nil {
		t.Fatal(err)
	}

	return img
}

func TestAnImageIsReadBackFromALargerDisk(t *testing.T) {
	for _, size := range []int64{1 << 20, 3<<20 + 512, talosimage.SmallSize, talosimage.FullSize, 4<<30 + 512} {
		img := mustNew(t, descriptor(), size, talosimage.Content{Seed: 7})

		got, err := talosimage.Read(img, size+5<<20)
		if err != nil {
			t.Fatalf("size %d: %v", size, err)
		}

		if want := img.Descriptor(); got.Talos != want.Talos || got.Schematic != want.Schematic || got.SectorSize != 512 || len(got.KernelArgs) != 1 {
			t.Fatalf("size %d: got %+v", size, got)
		}
	}
}

func TestSectorsOf4096Bytes(t *testing.T) {
	d := descriptor()
	d.SectorSize = 4096

	img := mustNew(t, d, 8<<20, talosimage.Content{})

	if got, err := talosimage.Read(img, img.Size()); err != nil || got.SectorSize != 4096 {
		t.Fatalf("got %+v, %v", got, err)
	}

	if _, err := talosimage.New(d, 8<<20+512, talosimage.Content{}); err == nil {
		t.Fatal("a size that is no multiple of the sector passed")
	}
}

func TestDamageIsNoticed(t *testing.T) {
	img := mustNew(t, descriptor(), 2<<20, talosimage.Content{Seed: 1})

	whole, err := io.ReadAll(img.Reader())
	if err != nil {
		t.Fatal(err)
	}

	size := int64(len(whole))
	boot := bytes.Index(whole, []byte("TALOSSIM"))

	for name, off := range map[string]int{"header": 512 + 60, "entries": 1024 + 3, "descriptor": boot + 20, "backup": len(whole) - 512 + 40} {
		disk := bytes.Clone(whole)
		disk[off] ^= 1

		if _, err := talosimage.Read(bytes.NewReader(disk), size); err == nil {
			t.Errorf("damage in the %s went unnoticed", name)
		}
	}

	disk := bytes.Clone(whole)
	disk[boot+70<<10] ^= 1

	if _, err := talosimage.Read(bytes.NewReader(disk), size); err != nil {
		t.Errorf("Read looks at the content: %v", err)
	}

	if _, err := talosimage.Verify(bytes.NewReader(disk), size, 1); err == nil {
		t.Error("Verify did not notice damage in the content")
	}

	if _, err := talosimage.Verify(bytes.NewReader(whole), size, 1); err != nil {
		t.Error(err)
	}

	if _, err := talosimage.Read(bytes.NewReader(whole[:size-512]), size-512); err == nil {
		t.Error("a disk without its last sector passed")
	}

	if _, err := talosimage.Read(bytes.NewReader(make([]byte, size)), size); err == nil {
		t.Error("a disk of zeros passed")
	}
}

// The bytes do not depend on how they are read.
func TestReadAtIsConsistent(t *testing.T) {
	img := mustNew(t, descriptor(), 2<<20, talosimage.Content{Seed: 3})

	whole, err := io.ReadAll(img.Reader())
	if err != nil {
		t.Fatal(err)
	}

	rapid.Check(t, func(t *rapid.T) {
		off := rapid.IntRange(0, len(whole)).Draw(t, "offset")
		p := make([]byte, rapid.IntRange(0, 70_000).Draw(t, "length"))

		n, err := img.ReadAt(p, int64(off))
		if want := min(len(p), len(whole)-off); n != want || (err != nil) != (n < len(p) || off == len(whole)) {
			t.Fatalf("read %d, %v; want %d", n, err, want)
		}

		if !bytes.Equal(p[:n], whole[off:off+n]) {
			t.Fatal("other bytes")
		}
	})
}

// The full image has the shape of the measured one: 2,492 chunks of 512 KiB,
// about 611 of them not zero.
func TestFullImageHasTheMeasuredShape(t *testing.T) {
	img := mustNew(t, descriptor(), talosimage.FullSize, talosimage.Content{})

	const chunk = 512 << 10

	buf, zero := make([]byte, chunk), make([]byte, chunk)
	chunks, data := 0, 0

	for off := int64(0); off < img.Size(); off += chunk {
		if _, err := img.ReadAt(buf, off); err != nil {
			t.Fatal(err)
		}

		chunks++

		if !bytes.Equal(buf, zero) {
			data++
		}
	}

	if chunks != 2492 || data < 600 || data > 620 {
		t.Fatalf("%d of %d chunks are not zero", data, chunks)
	}
}

func TestTooMuchContentIsRefused(t *testing.T) {
	if _, err := talosimage.New(descriptor(), 2<<20, talosimage.Content{Bytes: 2 << 20}); err == nil {
		t.Fatal("content as large as the disk passed")
	}

	if _, err := talosimage.New(descriptor(), 2<<20, talosimage.Content{Bytes: -1}); err == nil {
		t.Fatal("negative content passed")
	}
}

func BenchmarkReadAt(b *testing.B) {
	img := mustNew(b, descriptor(), talosimage.FullSize, talosimage.Content{})
	buf := make([]byte, 512<<10)

	b.SetBytes(int64(len(buf)))

	for b.Loop() {
		if _, err := img.ReadAt(buf, 120<<20); err != nil {
			b.Fatal(err)
		}
	}
}
