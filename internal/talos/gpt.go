package talos

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Limits of a GUID partition table that we accept (UEFI specification, 5.3).
const (
	gptHeaderMin  = 92
	gptEntryMin   = 128
	gptEntryMax   = 4096
	gptEntriesMax = 1024
)

// gptDisk is what the primary header says of the disk.
type gptDisk struct {
	// Sector is the size of a sector in bytes, 512 or 4096.
	Sector uint64
	// Size is the length of the disk in bytes: the backup header is its last sector.
	Size uint64
}

// parseGPT reads the partition table in the first bytes of a disk, for both
// sizes of a sector. The header's checksum must be good, and that of the
// entries too where head reaches as far.
func parseGPT(head []byte) (gptDisk, error) {
	var firstErr error

	for _, sector := range []uint64{512, 4096} {
		disk, err := parseGPTHeader(head, sector)
		if err == nil {
			return disk, nil
		}

		// The error of the size at which there is a header says more.
		if firstErr == nil || !errors.Is(err, errNoGPT) {
			firstErr = err
		}
	}

	return gptDisk{}, firstErr
}

var errNoGPT = errors.New("no GUID partition table")

func parseGPTHeader(head []byte, sector uint64) (gptDisk, error) {
	if uint64(len(head)) < 2*sector {
		return gptDisk{}, errNoGPT
	}

	h := head[sector : 2*sector]
	if !bytes.Equal(h[:8], []byte("EFI PART")) {
		return gptDisk{}, errNoGPT
	}

	le := binary.LittleEndian

	length := le.Uint32(h[12:])
	if length < gptHeaderMin || uint64(length) > sector {
		return gptDisk{}, fmt.Errorf("partition table header of %d bytes", length)
	}

	sum := le.Uint32(h[16:])
	if checksumWithout(h[:length]) != sum {
		return gptDisk{}, errors.New("wrong checksum of the partition table header")
	}

	my, alternate, last := le.Uint64(h[24:]), le.Uint64(h[32:]), le.Uint64(h[48:])

	switch {
	case my != 1:
		return gptDisk{}, fmt.Errorf("partition table header says it is at sector %d", my)
	case alternate < 2 || alternate >= math.MaxInt64/sector-1:
		return gptDisk{}, fmt.Errorf("backup partition table at sector %d", alternate)
	case last >= alternate:
		return gptDisk{}, fmt.Errorf("usable sectors end at %d, after the backup partition table", last)
	}

	if err := checkEntries(head, h, sector); err != nil {
		return gptDisk{}, err
	}

	return gptDisk{Sector: sector, Size: (alternate + 1) * sector}, nil
}

// checksumWithout sums a header as if its own checksum field were zero.
func checksumWithout(h []byte) uint32 {
	sum := crc32.ChecksumIEEE(h[:16])
	sum = crc32.Update(sum, crc32.IEEETable, make([]byte, 4))

	return crc32.Update(sum, crc32.IEEETable, h[20:])
}

func checkEntries(head, h []byte, sector uint64) error {
	le := binary.LittleEndian

	start, count, size := le.Uint64(h[72:]), uint64(le.Uint32(h[80:])), uint64(le.Uint32(h[84:]))
	if count == 0 || count > gptEntriesMax || size < gptEntryMin || size > gptEntryMax || start < 2 {
		return fmt.Errorf("partition table of %d entries of %d bytes at sector %d", count, size, start)
	}

	if start > uint64(len(head))/sector {
		return nil
	}

	from := start * sector
	if uint64(len(head)) < from+count*size {
		return nil
	}

	if crc32.ChecksumIEEE(head[from:from+count*size]) != le.Uint32(h[88:]) {
		return errors.New("wrong checksum of the partition table")
	}

	return nil
}
