// Package fat12 reads small FAT12 volumes, as a guest's kernel does: the root
// directory only, with long names. It knows nothing of the code that writes
// them, so that each checks the other.
package fat12

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf16"
)

const (
	sectorSize = 512
	entrySize  = 32
	// maxClusters is where FAT12 ends and FAT16 begins.
	maxClusters = 4085

	attrVolume = 0x08
	attrDir    = 0x10
	attrLong   = 0x0f

	deleted = 0xe5
	// lowerBase and lowerExt say in byte 12 that a part of a short name is in
	// lower case.
	lowerBase = 0x08
	lowerExt  = 0x10
)

// Volume is an open volume.
type Volume struct {
	fat         []byte
	root        []byte
	clusters    []byte // the data area
	clusterSize int
	label       string
	files       []file
}

type file struct {
	name  string
	first int
	size  uint32
}

// geometry is what the boot sector says, in sectors.
type geometry struct {
	perCluster, fatAt, fatSectors, rootAt, dataAt, clusters int
}

// Open reads the volume's structure. It refuses what a kernel would refuse:
// another file system, sizes that contradict each other, a volume that is
// larger than its device.
func Open(device []byte) (*Volume, error) {
	g, err := readBootSector(device)
	if err != nil {
		return nil, fmt.Errorf("opening a FAT volume: %w", err)
	}

	v := &Volume{
		clusterSize: g.perCluster * sectorSize,
		fat:         device[g.fatAt*sectorSize : (g.fatAt+g.fatSectors)*sectorSize],
		root:        device[g.rootAt*sectorSize : g.dataAt*sectorSize],
		clusters:    device[g.dataAt*sectorSize : (g.dataAt+g.clusters*g.perCluster)*sectorSize],
	}

	v.readRoot()

	// The label in the boot sector counts only when the root directory has none.
	if v.label == "" && (device[38] == 0x29 || device[38] == 0x28) {
		v.label = strings.TrimRight(string(device[43:54]), " ")
	}

	return v, nil
}

func readBootSector(device []byte) (geometry, error) {
	if len(device) < sectorSize || device[510] != 0x55 || device[511] != 0xaa {
		return geometry{}, errors.New("no boot sector")
	}

	le := binary.LittleEndian
	g := geometry{perCluster: int(device[13]), fatAt: int(le.Uint16(device[14:])), fatSectors: int(le.Uint16(device[22:]))}
	sector, copies, rootEntries, total := int(le.Uint16(device[11:])), int(device[16]), int(le.Uint16(device[17:])), int(le.Uint16(device[19:]))

	if total == 0 {
		total = int(le.Uint32(device[32:]))
	}

	if sector != sectorSize || bits.OnesCount8(device[13]) != 1 || min(g.fatAt, copies, g.fatSectors) == 0 || rootEntries*entrySize%sector != 0 {
		return geometry{}, errors.New("impossible boot sector")
	}

	if total*sector > len(device) {
		return geometry{}, fmt.Errorf("%d sectors on a device of %d bytes", total, len(device))
	}

	g.rootAt = g.fatAt + copies*g.fatSectors
	g.dataAt = g.rootAt + rootEntries*entrySize/sector

	if g.dataAt > total {
		return geometry{}, errors.New("its tables are larger than itself")
	}

	g.clusters = (total - g.dataAt) / g.perCluster

	if g.clusters >= maxClusters {
		return geometry{}, fmt.Errorf("%d clusters are too many for FAT12", g.clusters)
	}

	if ((g.clusters+2)*3+1)/2 > g.fatSectors*sector {
		return geometry{}, errors.New("the allocation table is too small")
	}

	return g, nil
}

// Label is the volume's name without its padding.
func (v *Volume) Label() string { return v.label }

// readRoot collects the files. Long names whose parts are out of order or whose
// checksum does not fit their short name are dropped, as Linux does.
func (v *Volume) readRoot() {
	var long longName

	for e := v.root; len(e) >= entrySize && e[0] != 0; e = e[entrySize:] {
		attr := e[11]

		switch {
		case e[0] == deleted:
			long = longName{}
		case attr&0x3f == attrLong:
			long.add(e[:entrySize])
		case attr&attrVolume != 0:
			if v.label == "" {
				v.label = strings.TrimRight(string(e[:11]), " ")
			}

			long = longName{}
		case attr&attrDir != 0:
			long = longName{}
		default:
			name, ok := long.finish(e[:11])
			if !ok {
				name = shortName(e[:entrySize])
			}

			v.files = append(v.files, file{
				name: name, first: int(binary.LittleEndian.Uint16(e[26:])), size: binary.LittleEndian.Uint32(e[28:]),
			})
			long = longName{}
		}
	}
}

// shortName is the 8.3 name with its dot, in the case that its flags say.
func shortName(e []byte) string {
	base, ext := strings.TrimRight(string(e[:8]), " "), strings.TrimRight(string(e[8:11]), " ")

	if e[12]&lowerBase != 0 {
		base = strings.ToLower(base)
	}

	if e[12]&lowerExt != 0 {
		ext = strings.ToLower(ext)
	}

	if ext == "" {
		return base
	}

	return base + "." + ext
}

// longName gathers the parts of a long name, which come last part first.
type longName struct {
	units []uint16
	next  byte // number of the part that must follow; 0 when complete
	sum   byte
	valid bool
}

func (l *longName) add(e []byte) {
	number := e[0] & 0x3f

	if e[0]&0x40 != 0 {
		*l = longName{next: number, sum: e[13], valid: number > 0}
	}

	if !l.valid || number != l.next || e[13] != l.sum {
		*l = longName{}

		return
	}

	l.next--

	part := make([]uint16, 0, 13)

	for _, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		unit := binary.LittleEndian.Uint16(e[at:])
		if unit == 0 {
			break
		}

		part = append(part, unit)
	}

	l.units = append(part, l.units...)
}

func (l *longName) finish(short []byte) (string, bool) {
	var sum byte
	for _, c := range short {
		sum = sum>>1 | sum<<7
		sum += c
	}

	if !l.valid || l.next != 0 || sum != l.sum {
		return "", false
	}

	return string(utf16.Decode(l.units)), true
}

// ErrNotExist is returned for a file that is not there.
var ErrNotExist = errors.New("no such file")

// Names lists the files of the root directory.
func (v *Volume) Names() []string {
	names := make([]string, 0, len(v.files))
	for _, f := range v.files {
		names = append(names, f.name)
	}

	return names
}

// ReadFile reads a file of the root directory. Case does not matter.
func (v *Volume) ReadFile(name string) ([]byte, error) {
	for _, f := range v.files {
		if strings.EqualFold(f.name, name) {
			return v.read(f)
		}
	}

	return nil, fmt.Errorf("reading %s: %w", name, ErrNotExist)
}

func (v *Volume) read(f file) ([]byte, error) {
	if int64(f.size) > int64(len(v.clusters)) {
		return nil, fmt.Errorf("reading %s: %d bytes are more than the volume has", f.name, f.size)
	}

	data := make([]byte, 0, f.size)
	rest := int(f.size)

	for cluster := f.first; rest > 0; cluster = v.next(cluster) {
		at := (cluster - 2) * v.clusterSize
		if cluster < 2 || at+v.clusterSize > len(v.clusters) {
			return nil, fmt.Errorf("reading %s: its chain of clusters leads to %d with %d bytes missing", f.name, cluster, rest)
		}

		n := min(rest, v.clusterSize)
		data = append(data, v.clusters[at:at+n]...)
		rest -= n
	}

	return data, nil
}

// next reads the allocation table: two entries share three bytes.
func (v *Volume) next(cluster int) int {
	pair := int(binary.LittleEndian.Uint16(v.fat[cluster*3/2:]))
	if cluster%2 == 1 {
		return pair >> 4
	}

	return pair & 0xfff
}
