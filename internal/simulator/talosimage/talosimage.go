// Package talosimage makes synthetic Talos disk images and reads them back.
//
// An image looks to a partition tool like the raw disk of a Talos release: a
// protective MBR, a GPT with its backup at the very end, the partitions EFI,
// BIOS, BOOT and META, some hundreds of MiB of data and zeros for the rest. In
// place of a boot loader, the first bytes of BOOT hold a Descriptor, from which
// the simulated guest learns what it boots. Nothing is stored: every byte
// follows from the descriptor, the size and a seed, so that the full-size image
// costs a few KiB of memory.
//
//	| MBR GPT | EFI: data | BIOS | BOOT: descriptor, data, zeros … | META | GPT |
package talosimage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	// FullSize is the size in bytes of the nocloud raw disk of Talos 1.7 to 1.14.
	FullSize int64 = 1246 << 20
	// FullContent is how many bytes of the full-size image are not zero.
	FullContent int64 = 300 << 20
	// SmallSize is the size in bytes of an image for fast tests.
	SmallSize int64 = 24 << 20
	// SmallContent is how many bytes of the small image are not zero.
	SmallContent int64 = 6 << 20
)

// Descriptor tells the simulated guest what the image is.
type Descriptor struct {
	// Talos is the version without the leading v.
	Talos     string `json:"talos"`
	Schematic string `json:"schematic"`
	// Arch is amd64 or arm64.
	Arch string `json:"arch"`
	// Platform is nocloud, metal and so on.
	Platform   string   `json:"platform"`
	SecureBoot bool     `json:"secureBoot,omitempty"`
	KernelArgs []string `json:"kernelArgs,omitempty"`
	// SectorSize is 512 or 4096; zero means 512.
	SectorSize int `json:"sectorSize,omitempty"`
}

// Content says what data fills the image.
type Content struct {
	// Seed makes the data of two images differ.
	Seed uint64 `json:"seed"`
	// Bytes is how much of the image is not zero, at most about 80 %.
	// Zero means the same share as in a real image, about a quarter.
	Bytes int64 `json:"bytes"`
}

// Image is a disk image whose bytes are computed when they are read. Its
// methods may be called from several goroutines.
type Image struct {
	descriptor Descriptor
	size       int64
	fixed      []region
	extents    []extent
}

// region is a piece of the image with given bytes.
type region struct {
	offset int64
	data   []byte
}

// extent is a piece of the image that the generator fills.
type extent struct{ offset, length int64 }

// New lays out an image of size bytes. The size must be a multiple of the
// sector size and at least 1 MiB.
func New(d Descriptor, size int64, content Content) (*Image, error) {
	if d.SectorSize == 0 {
		d.SectorSize = 512
	}

	if content.Bytes == 0 {
		content.Bytes = size / 1246 * 300
	}

	parts, err := layout(size, d.SectorSize)
	if err != nil {
		return nil, err
	}

	head, tail := encodeTables(size, d, parts)

	header, err := encodeDescriptor(d, content)
	if err != nil {
		return nil, err
	}

	boot := parts[bootIndex]
	if int64(len(header)) > boot.length {
		return nil, errors.New("laying out an image: the descriptor does not fit into the boot partition")
	}

	runs := extents(parts, content.Bytes)
	if end := runs[len(runs)-1]; content.Bytes < 0 || end.offset+end.length > boot.offset+boot.length {
		return nil, fmt.Errorf("laying out an image of %d bytes: %d bytes of content do not fit", size, content.Bytes)
	}

	return &Image{
		descriptor: d,
		size:       size,
		fixed: []region{
			{offset: 0, data: head},
			{offset: boot.offset, data: header},
			{offset: size - int64(len(tail)), data: tail},
		},
		extents: runs,
	}, nil
}

// Descriptor returns what the image says of itself.
func (i *Image) Descriptor() Descriptor { return i.descriptor }

// Size is the length of the image in bytes.
func (i *Image) Size() int64 { return i.size }

// Reader reads the whole image from its start.
func (i *Image) Reader() *io.SectionReader { return io.NewSectionReader(i, 0, i.size) }

// ReadAt implements io.ReaderAt.
func (i *Image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("reading an image: negative offset")
	}

	if off >= i.size {
		return 0, io.EOF
	}

	var end error

	if rest := i.size - off; int64(len(p)) > rest {
		p, end = p[:rest], io.EOF
	}

	clear(p)

	for _, e := range i.extents {
		from, to := max(off, e.offset), min(off+int64(len(p)), e.offset+e.length)
		if from < to {
			fill(p[from-off:to-off], i.seed(), uint64(from))
		}
	}

	for _, r := range i.fixed {
		from, to := max(off, r.offset), min(off+int64(len(p)), r.offset+int64(len(r.data)))
		if from < to {
			copy(p[from-off:to-off], r.data[from-r.offset:to-r.offset])
		}
	}

	return len(p), end
}

// seed follows from the descriptor block, which holds the content's own seed,
// so that images of two schematics never have the same data.
func (i *Image) seed() uint64 {
	return uint64(crc32.ChecksumIEEE(i.fixed[1].data))
}

// extents spreads the content over the disk: a third in EFI and the rest in
// two runs in BOOT with zeros between, none of them aligned to a chunk.
func extents(parts []partition, content int64) []extent {
	efi, boot := parts[efiIndex], parts[bootIndex]
	shift := min(boot.length/64, 12<<10) &^ 511

	inEFI := min(content/3, efi.length-shift)
	first := (content - inEFI) / 2
	second := content - inEFI - first

	gap := min(boot.length/16, boot.length-descriptorArea-content+inEFI)
	gap = max(gap, 0) &^ 511

	start := boot.offset + descriptorArea

	return []extent{
		{offset: efi.offset + shift, length: inEFI},
		{offset: start, length: first},
		{offset: start + first + gap, length: second},
	}
}
