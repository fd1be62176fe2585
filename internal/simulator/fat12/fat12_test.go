package fat12_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/fat12"
)

// device is a volume written by hand: one reserved sector, one table of one
// sector, 16 root entries, then the clusters of one sector each.
func device() []byte {
	d := make([]byte, 12*512)
	le := binary.LittleEndian

	le.PutUint16(d[11:], 512)
	d[13] = 1
	le.PutUint16(d[14:], 1)
	d[16] = 1
	le.PutUint16(d[17:], 16)
	le.PutUint16(d[19:], 12)
	le.PutUint16(d[22:], 1)
	d[38] = 0x29
	copy(d[43:], "BOOTLABEL  ")
	d[510], d[511] = 0x55, 0xaa

	// Clusters 2, 5 and 3 make a chain: entries in even and odd places.
	setFAT(d, 2, 5)
	setFAT(d, 5, 3)
	setFAT(d, 3, 0xfff)

	root := d[1024:]
	copy(root, "cidata     ")
	root[11] = 0x08

	copy(root[32:], "\xe5LD     TXT")

	long(root[64:], "user-data", "USER-D~1   ")
	short(root[96:], "USER-D~1   ", 0, 2, 1100)
	short(root[128:], "README  TXT", 0x18, 0, 0)

	for i, cluster := range []int{2, 5, 3} {
		copy(d[1536+(cluster-2)*512:], bytes.Repeat([]byte{byte('a' + i)}, 512))
	}

	return d
}

func setFAT(d []byte, n, value int) {
	at := 512 + n*3/2
	pair := int(d[at]) | int(d[at+1])<<8

	if n%2 == 0 {
		pair = pair&0xf000 | value
	} else {
		pair = pair&0x000f | value<<4
	}

	d[at], d[at+1] = byte(pair), byte(pair>>8)
}

func short(e []byte, name string, flags byte, cluster uint16, size uint32) {
	copy(e, name)
	e[11], e[12] = 0x20, flags
	binary.LittleEndian.PutUint16(e[26:], cluster)
	binary.LittleEndian.PutUint32(e[28:], size)
}

func long(e []byte, name, shortName string) {
	var sum byte
	for _, c := range []byte(shortName) {
		sum = (sum&1)<<7 + sum>>1 + c
	}

	e[0], e[11], e[13] = 0x41, 0x0f, sum

	for i, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		unit := uint16(0xffff)

		switch {
		case i < len(name):
			unit = uint16(name[i])
		case i == len(name):
			unit = 0
		}

		binary.LittleEndian.PutUint16(e[at:], unit)
	}
}

func TestFilesAndLabel(t *testing.T) {
	v, err := fat12.Open(device())
	if err != nil {
		t.Fatal(err)
	}

	if v.Label() != "cidata" || !slices.Equal(v.Names(), []string{"user-data", "readme.txt"}) {
		t.Fatal(v.Label(), v.Names())
	}

	want := append(append(bytes.Repeat([]byte("a"), 512), bytes.Repeat([]byte("b"), 512)...), bytes.Repeat([]byte("c"), 76)...)
	if got, err := v.ReadFile("USER-DATA"); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}

	if got, err := v.ReadFile("readme.txt"); err != nil || len(got) != 0 {
		t.Fatal(got, err)
	}

	if _, err := v.ReadFile("meta-data"); !errors.Is(err, fat12.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestALongNameThatDoesNotFitIsDropped(t *testing.T) {
	d := device()
	d[1024+64+13] ^= 1

	v, err := fat12.Open(d)
	if err != nil || !slices.Equal(v.Names(), []string{"USER-D~1", "readme.txt"}) {
		t.Fatal(v.Names(), err)
	}
}

func TestTheBootSectorsLabelIsTheSecondChoice(t *testing.T) {
	d := device()
	d[1024] = 0xe5

	if v, err := fat12.Open(d); err != nil || v.Label() != "BOOTLABEL" {
		t.Fatal(v.Label(), err)
	}
}

func TestBrokenVolumes(t *testing.T) {
	for name, damage := range map[string]func(d []byte){
		"no signature":       func(d []byte) { d[510] = 0 },
		"sector size":        func(d []byte) { d[12] = 4 },
		"cluster size":       func(d []byte) { d[13] = 3 },
		"larger than device": func(d []byte) { d[19] = 13 },
		"tables too large":   func(d []byte) { d[22] = 200 },
	} {
		d := device()
		damage(d)

		if _, err := fat12.Open(d); err == nil {
			t.Errorf("%s: passed", name)
		}
	}

	for name, damage := range map[string]func(d []byte){
		"chain ends early": func(d []byte) { setFAT(d, 5, 0xfff) },
		"chain leads away": func(d []byte) { setFAT(d, 2, 0x200) },
		"larger than disk": func(d []byte) { d[1024+96+31] = 1 },
	} {
		d := device()
		damage(d)

		v, err := fat12.Open(d)
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		if _, err := v.ReadFile("user-data"); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
}

// FuzzOpen: a broken volume is an error, never a panic or an endless loop.
func FuzzOpen(f *testing.F) {
	f.Add(device())

	f.Fuzz(func(_ *testing.T, d []byte) {
		v, err := fat12.Open(d)
		if err != nil {
			return
		}

		for _, name := range v.Names() {
			v.ReadFile(name) //nolint:errcheck // only that it returns
		}
	})
}
