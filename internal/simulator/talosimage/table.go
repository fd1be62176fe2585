package talosimage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"unicode/utf16"
)

// The partitions in the order in which they stand on the disk.
const (
	efiIndex = iota
	biosIndex
	bootIndex
	metaIndex
)

const (
	entrySize  = 128
	entryCount = 128
	headerSize = 92

	// descriptorArea is what the descriptor may take at the start of BOOT.
	descriptorArea = 64 << 10
	// descriptorMagic opens the descriptor; its length, its CRC-32 and its JSON
	// text follow.
	descriptorMagic = "TALOSSIM"
)

var gptSignature = []byte("EFI PART")

// partition is one entry of the table, in bytes.
type partition struct {
	name           string
	offset, length int64
}

// tableSectors is how many sectors the entries take.
func tableSectors(sector int64) int64 { return entrySize * entryCount / sector }

// layout places the partitions on a disk of size bytes.
func layout(size int64, sectorSize int) ([]partition, error) {
	sector := int64(sectorSize)

	switch {
	case sector != 512 && sector != 4096:
		return nil, fmt.Errorf("laying out an image: sector size %d is neither 512 nor 4096", sectorSize)
	case size < 1<<20:
		return nil, fmt.Errorf("laying out an image: %d bytes are less than 1 MiB", size)
	case size%sector != 0:
		return nil, fmt.Errorf("laying out an image: %d bytes are no multiple of %d", size, sector)
	}

	align := int64(64 << 10)
	if size >= 16<<20 {
		align = 1 << 20
	}

	end := size - (1+tableSectors(sector))*sector
	efi := max(size/12/align*align, align)
	boot := (end - align - efi - 2*align) / align * align

	parts := []partition{
		{name: "EFI", offset: align, length: efi},
		{name: "BIOS", offset: align + efi, length: align},
		{name: "BOOT", offset: 2*align + efi, length: boot},
		{name: "META", offset: 2*align + efi + boot, length: align},
	}

	return parts, nil
}

// encodeTables builds the start of the disk (MBR, primary header, entries) and
// its end (entries, backup header).
func encodeTables(size int64, d Descriptor, parts []partition) (head, tail []byte) {
	sector := int64(d.SectorSize)
	last := uint64(size/sector - 1)

	entries := encodeEntries(sector, d, parts)
	table := uint64(tableSectors(sector))

	head = make([]byte, 2*sector, 2*sector+int64(len(entries)))
	encodeMBR(head, last)
	copy(head[sector:], encodeHeader(headerFields{my: 1, alternate: last, last: last, entries: 2, table: table}, d, entries))
	head = append(head, entries...)

	tail = make([]byte, int64(len(entries))+sector)
	copy(tail, entries)
	copy(tail[len(entries):], encodeHeader(headerFields{my: last, alternate: 1, last: last, entries: last - table, table: table}, d, entries))

	return head, tail
}

func encodeMBR(b []byte, last uint64) {
	entry := b[446:462]
	entry[1], entry[2] = 0x00, 0x02                 // first sector, in the old geometry
	entry[4] = 0xee                                 // GPT protective
	entry[5], entry[6], entry[7] = 0xff, 0xff, 0xff // last sector, in the old geometry
	binary.LittleEndian.PutUint32(entry[8:], 1)     // first sector
	binary.LittleEndian.PutUint32(entry[12:], uint32(last))
	b[510], b[511] = 0x55, 0xaa
}

type headerFields struct{ my, alternate, last, entries, table uint64 }

func encodeHeader(f headerFields, d Descriptor, entries []byte) []byte {
	h := make([]byte, headerSize)
	copy(h, gptSignature)

	le := binary.LittleEndian
	le.PutUint32(h[8:], 0x00010000)
	le.PutUint32(h[12:], headerSize)
	le.PutUint64(h[24:], f.my)
	le.PutUint64(h[32:], f.alternate)
	le.PutUint64(h[40:], 2+f.table)
	le.PutUint64(h[48:], f.last-1-f.table)
	copy(h[56:72], guid(d, "disk"))
	le.PutUint64(h[72:], f.entries)
	le.PutUint32(h[80:], entryCount)
	le.PutUint32(h[84:], entrySize)
	le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h))

	return h
}

func encodeEntries(sector int64, d Descriptor, parts []partition) []byte {
	entries := make([]byte, entrySize*entryCount)

	for i, p := range parts {
		e := entries[i*entrySize : (i+1)*entrySize]

		copy(e, guid(Descriptor{}, "type "+p.name))
		copy(e[16:], guid(d, p.name))
		binary.LittleEndian.PutUint64(e[32:], uint64(p.offset/sector))
		binary.LittleEndian.PutUint64(e[40:], uint64((p.offset+p.length)/sector-1))

		for j, unit := range utf16.Encode([]rune(p.name)) {
			binary.LittleEndian.PutUint16(e[56+2*j:], unit)
		}
	}

	return entries
}

// guid derives a stable identifier of RFC 4122 shape.
func guid(d Descriptor, role string) []byte {
	sum := sha256.Sum256([]byte(d.Schematic + "\n" + d.Talos + "\n" + d.Arch + "\n" + role))
	id := sum[:16]
	id[7] = id[7]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80

	return id
}

// stored is the JSON text of the descriptor block.
type stored struct {
	Descriptor

	Content Content `json:"content"`
	// Size is the image's length in bytes.
	Size int64 `json:"size,omitempty"`
}

func encodeDescriptor(d Descriptor, content Content) ([]byte, error) {
	text, err := json.Marshal(stored{Descriptor: d, Content: content})
	if err != nil {
		return nil, fmt.Errorf("encoding the image descriptor: %w", err)
	}

	var b bytes.Buffer

	b.WriteString(descriptorMagic)
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
	b.Write(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(text)))
	b.Write(text)

	if b.Len() > descriptorArea {
		return nil, fmt.Errorf("encoding the image descriptor: %d bytes are more than %d", b.Len(), descriptorArea)
	}

	return b.Bytes(), nil
}
