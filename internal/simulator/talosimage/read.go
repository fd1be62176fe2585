package talosimage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"
)

// gptHeader is what reading needs of a header.
type gptHeader struct {
	sector         int64
	my, alternate  uint64
	entriesLBA     uint64
	entriesCRC     uint32
	count, byteLen uint32
}

// Read finds the image on a disk of size bytes and returns its descriptor. The
// disk may be larger than the image. Both GPT headers, both entry tables and
// the descriptor must have good checksums.
func Read(r io.ReaderAt, size int64) (Descriptor, error) {
	s, err := read(r, size)

	return s.Descriptor, err
}

// Verify reads the image on a disk like Read and then compares every step-th
// piece of 64 KiB with what New made; step 1 compares all.
func Verify(r io.ReaderAt, size int64, step int64) (Descriptor, error) {
	s, err := read(r, size)
	if err != nil {
		return s.Descriptor, err
	}

	want, err := New(s.Descriptor, s.Size, s.Content)
	if err != nil {
		return s.Descriptor, err
	}

	const piece = 64 << 10

	a, b := make([]byte, piece), make([]byte, piece)

	for off := int64(0); off < want.Size(); off += piece * max(step, 1) {
		n, err := want.ReadAt(a, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return s.Descriptor, err
		}

		if m, err := r.ReadAt(b[:n], off); m < n {
			return s.Descriptor, fmt.Errorf("reading the disk at %d: %w", off, err)
		}

		if !bytes.Equal(a[:n], b[:n]) {
			return s.Descriptor, fmt.Errorf("the disk differs from the image at or after byte %d", off)
		}
	}

	return s.Descriptor, nil
}

func read(r io.ReaderAt, size int64) (stored, error) {
	var (
		none    stored
		primary gptHeader
		err     error
	)

	for _, sector := range []int64{512, 4096} {
		if primary, err = readHeader(r, size, sector, 1); err == nil {
			break
		}
	}

	if err != nil {
		return none, fmt.Errorf("reading the primary GPT: %w", err)
	}

	entries, err := readEntries(r, size, primary)
	if err != nil {
		return none, fmt.Errorf("reading the primary GPT: %w", err)
	}

	backup, err := readHeader(r, size, primary.sector, primary.alternate)
	if err == nil {
		_, err = readEntries(r, size, backup)
	}

	if err != nil {
		return none, fmt.Errorf("reading the backup GPT: %w", err)
	}

	boot, ok := findPartition(entries, int(primary.byteLen), "BOOT")
	if !ok {
		return none, errors.New("the disk has no partition BOOT")
	}

	s, err := readDescriptor(r, int64(boot)*primary.sector)
	if err != nil {
		return none, err
	}

	if int64(s.SectorSize) != primary.sector {
		return none, fmt.Errorf("the image is for sectors of %d bytes and its GPT for %d", s.SectorSize, primary.sector)
	}

	s.Size = int64(primary.alternate+1) * primary.sector

	return s, nil
}

func readHeader(r io.ReaderAt, size, sector int64, lba uint64) (gptHeader, error) {
	if lba == 0 || lba >= uint64(size/sector) {
		return gptHeader{}, fmt.Errorf("sector %d is beyond the disk of %d bytes", lba, size)
	}

	h := make([]byte, headerSize)
	if _, err := r.ReadAt(h, int64(lba)*sector); err != nil {
		return gptHeader{}, err
	}

	le := binary.LittleEndian

	if !bytes.Equal(h[:8], gptSignature) {
		return gptHeader{}, errors.New("no signature")
	}

	sum := le.Uint32(h[16:])
	clear(h[16:20])

	if crc32.ChecksumIEEE(h) != sum {
		return gptHeader{}, errors.New("wrong header checksum")
	}

	if le.Uint64(h[24:]) != lba {
		return gptHeader{}, errors.New("the header is not where it says")
	}

	return gptHeader{
		sector: sector, my: lba, alternate: le.Uint64(h[32:]),
		entriesLBA: le.Uint64(h[72:]), count: le.Uint32(h[80:]), byteLen: le.Uint32(h[84:]), entriesCRC: le.Uint32(h[88:]),
	}, nil
}

func readEntries(r io.ReaderAt, size int64, h gptHeader) ([]byte, error) {
	if h.count > 1024 || h.byteLen < entrySize || h.byteLen > 4096 || h.entriesLBA >= uint64(size/h.sector) {
		return nil, errors.New("impossible partition table")
	}

	entries := make([]byte, int(h.count)*int(h.byteLen))
	if _, err := r.ReadAt(entries, int64(h.entriesLBA)*h.sector); err != nil {
		return nil, err
	}

	if crc32.ChecksumIEEE(entries) != h.entriesCRC {
		return nil, errors.New("wrong partition table checksum")
	}

	return entries, nil
}

func findPartition(entries []byte, size int, name string) (first uint64, ok bool) {
	for ; len(entries) >= size; entries = entries[size:] {
		var units []uint16

		for off := 56; off+2 <= entrySize; off += 2 {
			unit := binary.LittleEndian.Uint16(entries[off:])
			if unit == 0 {
				break
			}

			units = append(units, unit)
		}

		if string(utf16.Decode(units)) == name {
			return binary.LittleEndian.Uint64(entries[32:]), true
		}
	}

	return 0, false
}

func readDescriptor(r io.ReaderAt, offset int64) (stored, error) {
	var s stored

	head := make([]byte, len(descriptorMagic)+8)
	if _, err := r.ReadAt(head, offset); err != nil {
		return s, fmt.Errorf("reading the image descriptor: %w", err)
	}

	length := binary.LittleEndian.Uint32(head[len(descriptorMagic):])
	if string(head[:len(descriptorMagic)]) != descriptorMagic || length > descriptorArea {
		return s, errors.New("reading the image descriptor: the boot partition holds none")
	}

	text := make([]byte, length)
	if _, err := r.ReadAt(text, offset+int64(len(head))); err != nil {
		return s, fmt.Errorf("reading the image descriptor: %w", err)
	}

	if crc32.ChecksumIEEE(text) != binary.LittleEndian.Uint32(head[len(descriptorMagic)+4:]) {
		return s, errors.New("reading the image descriptor: wrong checksum")
	}

	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading the image descriptor: %w", err)
	}

	return s, nil
}
