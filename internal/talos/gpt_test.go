package talos

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// diskHead is the first MiB of a disk of the given size.
func diskHead(t testing.TB, sector int, size int64) []byte {
	t.Helper()

	img, err := talosimage.New(talosimage.Descriptor{Talos: "1.13.5", SectorSize: sector}, size, talosimage.Content{})
	if err != nil {
		t.Fatal(err)
	}

	head := make([]byte, headSize)
	if _, err := io.ReadFull(img.Reader(), head); err != nil {
		t.Fatal(err)
	}

	return head
}

// sign makes the header's checksum good again.
func sign(head []byte, sector int) {
	h := head[sector : sector+gptHeaderMin]
	binary.LittleEndian.PutUint32(h[16:], checksumWithout(h))
}

func TestThePartitionTableTellsTheSize(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		for _, size := range []int64{1 << 20, talosimage.FullSize, 4 << 30, 4<<30 + 4096} {
			disk, err := parseGPT(diskHead(t, sector, size))
			if err != nil || disk.Size != uint64(size) || disk.Sector != uint64(sector) {
				t.Errorf("sector %d, size %d: %+v, %v", sector, size, disk, err)
			}
		}
	}
}

func TestABadPartitionTableIsRefused(t *testing.T) {
	le := binary.LittleEndian

	for name, damage := range map[string]func(h []byte){
		"no signature":      func(h []byte) { h[0] = 'e' },
		"checksum":          func(h []byte) { h[60] ^= 1 },
		"short header":      func(h []byte) { le.PutUint32(h[12:], 91) },
		"long header":       func(h []byte) { le.PutUint32(h[12:], 1<<31) },
		"own place":         func(h []byte) { le.PutUint64(h[24:], 2); sign(h, 0) },
		"backup overflows":  func(h []byte) { le.PutUint64(h[32:], 1<<62); sign(h, 0) },
		"backup at maximum": func(h []byte) { le.PutUint64(h[32:], 1<<64-1); sign(h, 0) },
		"backup at start":   func(h []byte) { le.PutUint64(h[32:], 0); sign(h, 0) },
		"usable too long":   func(h []byte) { le.PutUint64(h[48:], 1<<60); sign(h, 0) },
		"entries":           func(h []byte) { h[600] ^= 1 },
		"entry size":        func(h []byte) { le.PutUint32(h[84:], 64); sign(h, 0) },
		"entry count":       func(h []byte) { le.PutUint32(h[80:], 1<<31); sign(h, 0) },
		"entries at header": func(h []byte) { le.PutUint64(h[72:], 1); sign(h, 0) },
	} {
		head := diskHead(t, 512, talosimage.SmallSize)
		damage(head[512:])

		if disk, err := parseGPT(head); err == nil {
			t.Errorf("%s: passed with %+v", name, disk)
		}
	}

	if _, err := parseGPT(nil); err == nil {
		t.Error("nothing passed")
	}
}

// Entries beyond what was decoded are not checked, wherever they claim to be.
func TestFarEntriesAreNotRead(t *testing.T) {
	head := diskHead(t, 512, talosimage.SmallSize)
	binary.LittleEndian.PutUint64(head[512+72:], 1<<63)
	sign(head, 512)

	if _, err := parseGPT(head); err != nil {
		t.Fatal(err)
	}
}

// FuzzParseGPT: never panics, and a size that is accepted is sane and signed.
func FuzzParseGPT(f *testing.F) {
	for _, sector := range []int{512, 4096} {
		// Short seeds keep the fuzzer quick; the entries lie beyond them.
		f.Add(diskHead(f, sector, 1<<20)[:2*sector], true)
		f.Add(diskHead(f, sector, talosimage.FullSize)[:2*sector], false)
	}

	f.Add([]byte("EFI PART"), true)

	f.Fuzz(func(t *testing.T, head []byte, resign bool) {
		if resign { // get past the checksum
			for _, sector := range []int{512, 4096} {
				if len(head) >= sector+gptHeaderMin {
					sign(head, sector)
				}
			}
		}

		disk, err := parseGPT(head)
		if err != nil {
			return
		}

		if disk.Size%disk.Sector != 0 || disk.Size < 3*disk.Sector || disk.Size > 1<<63 {
			t.Fatalf("%+v", disk)
		}

		length := binary.LittleEndian.Uint32(head[disk.Sector+12:])
		h := append([]byte(nil), head[disk.Sector:disk.Sector+uint64(length)]...)
		sum := binary.LittleEndian.Uint32(h[16:])
		clear(h[16:20])

		if crc32.ChecksumIEEE(h) != sum {
			t.Fatal("accepted without a good checksum")
		}
	})
}
