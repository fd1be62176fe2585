package rack

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/fat12"
)

// readFAT12 reads the files of a volume by its long names, with no knowledge
// of how it was built but its boot sector.
func readFAT12(t *testing.T, b []byte) (label string, files map[string][]byte) {
	t.Helper()

	le := binary.LittleEndian
	bps, spc := int(le.Uint16(b[11:])), int(b[13])
	reserved, fats, entries := int(le.Uint16(b[14:])), int(b[16]), int(le.Uint16(b[17:]))
	fatSize := int(le.Uint16(b[22:]))

	if int(le.Uint16(b[19:]))*bps != len(b) || le.Uint16(b[510:]) != 0xAA55 {
		t.Fatalf("volume of %d bytes has a bad boot sector", len(b))
	}

	fat := b[reserved*bps:][:fatSize*bps]
	if !bytes.Equal(fat, b[(reserved+fatSize)*bps:][:fatSize*bps]) {
		t.Fatal("the copies of the FAT differ")
	}

	root := (reserved + fats*fatSize) * bps
	data := root + entries*32
	files = map[string][]byte{}
	long := ""

	for at := root; b[at] != 0; at += 32 {
		e := b[at : at+32]

		switch e[11] {
		case 0x0F:
			var u []uint16
			for _, p := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
				u = append(u, le.Uint16(e[p:]))
			}

			long, _, _ = strings.Cut(string(utf16.Decode(u)), "\x00")
		case 0x08:
			label = string(e[:11])
		default:
			size, c := int(le.Uint32(e[28:])), int(le.Uint16(e[26:]))
			content := []byte{}

			for len(content) < size {
				content = append(content, b[data+(c-2)*spc*bps:][:spc*bps]...)
				v := int(le.Uint16(fat[c*3/2:]))
				c = v >> (4 * (c % 2)) & 0xFFF
			}

			if size > 0 && c < 0xFF8 {
				t.Errorf("chain of %s does not end", long)
			}

			files[long] = content[:size]
		}
	}

	return label, files
}

func TestCIDataHoldsBothFilesOfAnySize(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 5000, 32 << 10} {
		user := noise(n)
		meta := must(metaData("id", "host", []string{"ssh-ed25519 AAAA me", `quo"te`}))(t)

		label, files := readFAT12(t, must(buildCIData(meta, user))(t))
		if label != "cidata     " || len(files) != 2 {
			t.Errorf("label %q, %d files", label, len(files))
		}

		if !bytes.Equal(files["user-data"], user) || !bytes.Equal(files["meta-data"], meta) {
			t.Errorf("files differ with %d bytes of user data", n)
		}
	}
}

// The reader that guests use agrees.
func TestGuestsReadCIData(t *testing.T) {
	user := noise(3000)

	v, err := fat12.Open(must(buildCIData([]byte("{}"), user))(t))
	if err != nil {
		t.Fatal(err)
	}

	if got, err := v.ReadFile("user-data"); err != nil || !bytes.Equal(got, user) {
		t.Errorf("user-data: %v", err)
	}

	if strings.TrimSpace(v.Label()) != "cidata" {
		t.Errorf("label %q", v.Label())
	}
}

func TestMetaDataIsOneLineOfJSON(t *testing.T) {
	if got := string(must(metaData("id", "host", []string{}))(t)); got != `{"instance-id": "id", "local-hostname": "host", "public-keys": []}` {
		t.Error(got)
	}

	var v struct {
		Keys []string `json:"public-keys"`
	}
	if err := json.Unmarshal(must(metaData("id", "h", []string{"a", "b"}))(t), &v); err != nil || len(v.Keys) != 2 {
		t.Error(v, err)
	}
}

func TestCIDataLimit(t *testing.T) {
	// 512 sectors: boot, two FATs of two sectors, 32 of the root, 475 of data.
	if b := must(buildCIData(make([]byte, 474*512), []byte{1}))(t); len(b) != 512*512 {
		t.Errorf("%d bytes at the limit", len(b))
	}

	if _, err := buildCIData(make([]byte, 475*512), []byte{1}); err == nil {
		t.Error("one sector beyond the limit passed")
	}
}

// Keys can make the config disk too large: then the start fails.
func TestStartFailsWhenTheConfigDiskIsTooLarge(t *testing.T) {
	r := newRig(t)
	must(0, r.AddSSHKey("provider", "huge", strings.Repeat("k", 250<<10)))(t)

	body := wanted("i")
	body.SshPublicKeys = nil

	raw := must(json.Marshal(body))(t)
	if status, e, _ := r.raw("POST", "/v1/instances?project=demo", string(raw)); status != 201 {
		t.Fatal(status, e)
	}

	status, e, _ := r.raw("POST", "/v1/instances/i/start?project=demo", "")
	if status != 500 || e.ErrorCode != "Internal" {
		t.Error(status, e)
	}
}
