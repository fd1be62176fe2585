// Package published reads what the published Oxide provider has stored in Omni
// about its machines. It runs under the same provider ID with the same
// finalizer, so its requests become ours when the binary is swapped, and what
// it has made would be left behind if nobody knew of it.
//
// Its releases stored three forms under one type, which share field numbers:
//
//	form    releases          1        2            3                4 5 6
//	old     v0.1.0 to v0.3.0  UUID     instance ID  image ID         image name, schematic, URL
//	empty   May 2026          -        -            -                -
//	new     v0.4.0 on         project  instance     disks {ID, name} -
//
// They are told apart by what comes out: in the old form the first two are one
// and the same UUID, or only fields that the new one does not have are set.
package published

import (
	"regexp"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// Form is one of the forms of a stored machine.
type Form string

// The forms.
const (
	// FormEmpty says nothing of what was made, if anything was.
	FormEmpty Form = "empty"
	// FormOld is that of v0.1.0 to v0.3.0.
	FormOld Form = "old"
	// FormNew is that of v0.4.0 and later.
	FormNew Form = "new"
	// FormUnknown is none that a release wrote.
	FormUnknown Form = "unknown"
)

// Machine is what the published provider knew of a machine. What its release did
// not store is empty.
type Machine struct {
	Form Form
	// Project is a name or an ID, as the class gave it.
	Project string
	// Instance is the instance's ID.
	Instance string
	// Disks are the disks that were made with the instance.
	Disks []Disk
	// ImageID, ImageName and Schematic are of the image it boots.
	ImageID, ImageName, Schematic string
}

// Disk is one disk in the new form.
type Disk struct{ ID, Name string }

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// Read decodes a stored machine.
func Read(spec *specs.PublishedMachineSpec) Machine {
	first, second := string(spec.GetField1()), string(spec.GetField2())
	onlyOld := len(spec.GetField4())+len(spec.GetField5())+len(spec.GetField6()) > 0
	third := len(spec.GetField3())

	switch {
	case first == "" && second == "" && third == 0 && !onlyOld:
		return Machine{Form: FormEmpty}
	case onlyOld, first != "" && first == second && uuid.MatchString(first):
		return readOld(spec)
	default:
		return readNew(spec)
	}
}

func readOld(spec *specs.PublishedMachineSpec) Machine {
	m := Machine{
		Form: FormOld, Instance: string(spec.GetField2()),
		ImageName: string(spec.GetField4()), Schematic: string(spec.GetField5()),
	}

	if images := spec.GetField3(); len(images) > 0 {
		m.ImageID = string(images[len(images)-1])
	}

	if first := string(spec.GetField1()); first != m.Instance && first != "" && m.Instance != "" {
		return Machine{Form: FormUnknown}
	}

	if m.Instance != "" && !uuid.MatchString(m.Instance) || m.ImageID != "" && !uuid.MatchString(m.ImageID) {
		return Machine{Form: FormUnknown}
	}

	return m
}

func readNew(spec *specs.PublishedMachineSpec) Machine {
	m := Machine{Form: FormNew, Project: string(spec.GetField1()), Instance: string(spec.GetField2())}

	if m.Instance != "" && !uuid.MatchString(m.Instance) {
		return Machine{Form: FormUnknown}
	}

	for _, raw := range spec.GetField3() {
		d, ok := readDisk(raw)
		if !ok {
			return Machine{Form: FormUnknown}
		}

		m.Disks = append(m.Disks, d)
	}

	return m
}

// readDisk reads the message `{string id = 1; string name = 2;}`.
func readDisk(raw []byte) (Disk, bool) {
	var d Disk

	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 || kind != protowire.BytesType {
			return Disk{}, false
		}

		raw = raw[n:]

		value, n := protowire.ConsumeBytes(raw)
		if n < 0 || !utf8.Valid(value) {
			return Disk{}, false
		}

		raw = raw[n:]

		switch number {
		case 1:
			d.ID = string(value)
		case 2:
			d.Name = string(value)
		default:
			return Disk{}, false
		}
	}

	return d, uuid.MatchString(d.ID)
}
