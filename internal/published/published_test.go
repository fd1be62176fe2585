package published_test

import (
	"bytes"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/published"
)

const (
	one = "0a1b2c3d-0000-4000-8000-000000000001"
	two = "0a1b2c3d-0000-4000-8000-000000000002"
)

// field is one field on the wire, of a string or of a message.
func field(number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func wire(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func disk(id, name string) string { return string(wire(field(1, id), field(2, name))) }

func TestEveryFormThatWasEverStoredIsRead(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		stored []byte
		want   published.Machine
	}{
		"old": {
			wire(field(1, one), field(2, one), field(3, two), field(4, "talos-1-10-0-37656798-nocloud"), field(5, "3765"), field(6, "https://f/x")),
			published.Machine{Form: published.FormOld, Instance: one, ImageID: two, ImageName: "talos-1-10-0-37656798-nocloud", Schematic: "3765"},
		},
		"old, before the instance": {
			wire(field(3, two), field(4, "talos"), field(5, "3765"), field(6, "https://f/x")),
			published.Machine{Form: published.FormOld, ImageID: two, ImageName: "talos", Schematic: "3765"},
		},
		"old, only the schematic": {wire(field(5, "3765")), published.Machine{Form: published.FormOld, Schematic: "3765"}},
		"old, only the instance":  {wire(field(1, one), field(2, one)), published.Machine{Form: published.FormOld, Instance: one}},
		"empty":                   {nil, published.Machine{Form: published.FormEmpty}},
		"new": {
			wire(field(1, "talos"), field(2, one), field(3, disk(two, "x")), field(3, disk(one, "disk-00-x"))),
			published.Machine{
				Form: published.FormNew, Project: "talos", Instance: one,
				Disks: []published.Disk{{ID: two, Name: "x"}, {ID: one, Name: "disk-00-x"}},
			},
		},
		"new, project by ID":     {wire(field(1, two), field(2, one)), published.Machine{Form: published.FormNew, Project: two, Instance: one}},
		"new, only the project":  {field(1, "talos"), published.Machine{Form: published.FormNew, Project: "talos"}},
		"an instance by name":    {wire(field(1, "talos"), field(2, "x")), published.Machine{Form: published.FormUnknown}},
		"a disk that is none":    {wire(field(1, "talos"), field(2, one), field(3, two)), published.Machine{Form: published.FormUnknown}},
		"an old one of two IDs":  {wire(field(1, two), field(2, one), field(5, "3765")), published.Machine{Form: published.FormUnknown}},
		"an old one of nonsense": {wire(field(1, "a"), field(2, "a"), field(5, "3765")), published.Machine{Form: published.FormUnknown}},
	} {
		var spec specs.PublishedMachineSpec
		if err := proto.Unmarshal(c.stored, &spec); err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		if got := published.Read(&spec); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: read as %+v", name, got)
		}

		// The published provider must find it as it was, if it comes back.
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&spec)
		if err != nil || !bytes.Equal(again, c.stored) {
			t.Errorf("%s: written back as %x (%v), it was %x", name, again, err, c.stored)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(wire(field(1, "talos"), field(2, one), field(3, disk(two, "x"))))
	f.Add(wire(field(1, one), field(2, one), field(3, two), field(5, "3765")))
	f.Add([]byte{})

	f.Fuzz(func(t *testing.T, stored []byte) {
		var spec specs.PublishedMachineSpec
		if proto.Unmarshal(stored, &spec) != nil {
			return
		}

		// Invariant: nothing is taken for an instance or a disk that is no ID.
		m := published.Read(&spec)
		if m.Instance != "" && len(m.Instance) != len(one) {
			t.Errorf("instance %q", m.Instance)
		}

		for _, d := range m.Disks {
			if len(d.ID) != len(one) {
				t.Errorf("disk %q", d.ID)
			}
		}
	})
}
