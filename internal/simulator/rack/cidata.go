package rack

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Geometry of the config disk: a whole-device FAT12 volume, without partition
// table, of 512-byte sectors and one-sector clusters.
const (
	sectorSize     = 512
	maxCISectors   = 512
	fatCopies      = 2
	rootEntries    = 512
	rootSectors    = rootEntries * dirEntrySize / sectorSize
	dirEntrySize   = 32
	firstCluster   = 2
	endOfChain     = 0xFFF
	volumeLabel    = "cidata     "
	mediaFixed     = 0xF8
	attrVolume     = 0x08
	attrArchive    = 0x20
	attrLongName   = 0x0F
	longNameChars  = 13
	lastLongName   = 0x40
	fatDate        = 1<<5 | 1 // 1980-01-01, the epoch of FAT
	bootSignature  = 0xAA55
	extendedRecord = 0x29
)

type fatFile struct {
	name  string // long name
	short string // 8.3, 11 characters
	data  []byte
}

// cidata makes the config disk of an instance as it is now. Held: s.mu.
func (s *Server) cidata(i *instance) ([]byte, error) {
	keys := make([]string, 0, len(i.keys))
	for _, k := range i.keys {
		keys = append(keys, k.public)
	}

	meta, err := metaData(i.id, i.hostname, keys)
	if err != nil {
		return nil, err
	}

	return buildCIData(meta, i.userData)
}

// metaData is the one-line JSON of the file meta-data.
func metaData(id, hostname string, keys []string) ([]byte, error) {
	var parts []string

	for _, f := range []struct {
		key   string
		value any
	}{{"instance-id", id}, {"local-hostname", hostname}, {"public-keys", keys}} {
		v, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", f.key, err)
		}

		parts = append(parts, fmt.Sprintf("%q: %s", f.key, v))
	}

	return []byte("{" + strings.Join(parts, ", ") + "}"), nil
}

// buildCIData makes the volume with the files meta-data and user-data, and
// fails when they need more than 512 sectors in all.
func buildCIData(meta, user []byte) ([]byte, error) {
	files := []fatFile{
		{"meta-data", "META-D~1   ", meta},
		{"user-data", "USER-D~1   ", user},
	}

	clusters := 0
	for _, f := range files {
		clusters += sectorsOf(len(f.data))
	}

	clusters = max(clusters, 1)
	fatSectors := sectorsOf(((clusters+firstCluster)*3 + 1) / 2)
	total := 1 + fatCopies*fatSectors + rootSectors + clusters

	if total > maxCISectors {
		return nil, fmt.Errorf("config disk of %d sectors is larger than %d", total, maxCISectors)
	}

	v := &volume{b: make([]byte, total*sectorSize), fatSectors: fatSectors}
	v.bootSector(total)
	v.setFAT(0, 0xF00|mediaFixed)
	v.setFAT(1, endOfChain)
	v.entry([]byte(volumeLabel), attrVolume, 0, 0)

	next := firstCluster
	for _, f := range files {
		next = v.file(f, next)
	}

	return v.b, nil
}

func sectorsOf(n int) int { return (n + sectorSize - 1) / sectorSize }

type volume struct {
	b          []byte
	fatSectors int
	entries    int // directory entries in use
}

func (v *volume) rootAt() int { return (1 + fatCopies*v.fatSectors) * sectorSize }

func (v *volume) clusterAt(n int) int {
	return v.rootAt() + (rootSectors+n-firstCluster)*sectorSize
}

func (v *volume) bootSector(total int) {
	le := binary.LittleEndian
	b := v.b[:sectorSize]

	copy(b, "\xEB\x3C\x90MSWIN4.1")
	le.PutUint16(b[11:], sectorSize)
	b[13] = 1               // sectors per cluster
	le.PutUint16(b[14:], 1) // reserved sectors
	b[16] = fatCopies       //
	le.PutUint16(b[17:], rootEntries)
	le.PutUint16(b[19:], uint16(total))
	b[21] = mediaFixed
	le.PutUint16(b[22:], uint16(v.fatSectors))
	le.PutUint16(b[24:], 32) // sectors per track
	le.PutUint16(b[26:], 64) // heads
	b[36] = 0x80             // drive
	b[38] = extendedRecord
	le.PutUint32(b[39:], 0x12345678) // serial number
	copy(b[43:], volumeLabel)
	copy(b[54:], "FAT12   ")
	le.PutUint16(b[510:], bootSignature)
}

// setFAT writes a 12-bit entry in each copy of the table.
func (v *volume) setFAT(n, value int) {
	for c := range fatCopies {
		at := (1+c*v.fatSectors)*sectorSize + n*3/2
		pair := int(v.b[at]) | int(v.b[at+1])<<8

		if n%2 == 0 {
			pair = pair&0xF000 | value
		} else {
			pair = pair&0x000F | value<<4
		}

		v.b[at], v.b[at+1] = byte(pair), byte(pair>>8)
	}
}

// entry adds a directory entry.
func (v *volume) entry(short []byte, attr byte, cluster, size int) {
	e := v.slot()
	copy(e, short)
	e[11] = attr

	le := binary.LittleEndian
	le.PutUint16(e[16:], fatDate)
	le.PutUint16(e[18:], fatDate)
	le.PutUint16(e[24:], fatDate)
	le.PutUint16(e[26:], uint16(cluster))
	le.PutUint32(e[28:], uint32(size))
}

func (v *volume) slot() []byte {
	at := v.rootAt() + v.entries*dirEntrySize
	v.entries++

	return v.b[at : at+dirEntrySize]
}

// longName adds the entry that carries a name of at most 13 characters, which
// belongs to the short entry after it.
func (v *volume) longName(name string, short []byte) {
	units := utf16.Encode([]rune(name))
	if len(units) < longNameChars {
		units = append(units, 0)
	}

	for len(units) < longNameChars {
		units = append(units, 0xFFFF)
	}

	e := v.slot()
	e[0] = lastLongName | 1
	e[11] = attrLongName
	e[13] = shortNameSum(short)

	for i, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		binary.LittleEndian.PutUint16(e[at:], units[i])
	}
}

func shortNameSum(short []byte) byte {
	var sum byte
	for _, c := range short {
		sum = sum>>1 | sum<<7
		sum += c
	}

	return sum
}

// file adds a file whose data begins at a cluster, and returns the next free
// one. An empty file has no cluster.
func (v *volume) file(f fatFile, cluster int) int {
	n := sectorsOf(len(f.data))
	first := cluster

	if n == 0 {
		first = 0
	}

	v.longName(f.name, []byte(f.short))
	v.entry([]byte(f.short), attrArchive, first, len(f.data))
	copy(v.b[v.clusterAt(cluster):], f.data)

	for i := range n {
		link := cluster + i + 1
		if i == n-1 {
			link = endOfChain
		}

		v.setFAT(cluster+i, link)
	}

	return cluster + n
}
