package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// foreign are objects that look as if they were the daemon's, by ID, and what
// the rack said of them when they were made.
type foreign map[string]string

// makeForeign fills the project with objects whose names are of the daemon's
// forms and whose marks are nearly its own.
func makeForeign(p *place, owner string) foreign {
	p.t.Helper()

	var (
		ctx     = p.t.Context()
		rack    = p.Operator.Rack()
		project = oxide.NameOrId(site.Project)
		other   = naming.NewOwner()
		key     = naming.RequestKey("workers-aaaaaa")
		mark    = func(owner, provider string, kind naming.Kind) string {
			return naming.Mark{Owner: owner, Provider: provider, Kind: kind, Key: key, Run: "0123abcd"}.String()
		}
	)

	disk := func(name, description string, source oxide.DiskSource) *oxide.Disk {
		return must(rack.DiskCreate(ctx, oxide.DiskCreateParams{Project: project, Body: &oxide.DiskCreate{
			Name: oxide.Name(name), Description: description, Size: oxide.ByteCount(1 << 30),
			DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{DiskSource: source}},
		}}))(p.t)
	}

	blank := oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: 512}}
	importing := oxide.DiskSource{Value: oxide.DiskSourceImportingBlocks{BlockSize: 512}}

	disk("oipo-scratch-abcdefghij-01234567", "A disk without a mark.", importing)
	disk("oipo-scratch-abcdefghij-01234568", mark(other, "oxide", naming.KindScratch), importing)
	disk("oipo-scratch-abcdefghij-01234569", mark(owner, "oxide-2", naming.KindScratch), importing)
	disk("oipo-scratch-abcdefghij-0123456a", mark(owner, "oxide", naming.KindScratch)+" and more", importing)
	disk("boot-abcdefghij-workers-aaaaaa", strings.ToUpper(mark(owner, "oxide", naming.KindBoot)), blank)
	disk("data0-abcdefghij-workers-aaaaaa", strings.Replace(mark(owner, "oxide", naming.KindData), "run=", "run= ", 1), blank)
	source := disk("oipo-scratch-abcdefghij-0123456b", strings.Replace(mark(owner, "oxide", naming.KindScratch), "oipo/1", "oipo/2", 1), blank)

	snapshot := must(rack.SnapshotCreate(ctx, oxide.SnapshotCreateParams{Project: project, Body: &oxide.SnapshotCreate{
		Name: "oipo-snapshot-0123456789abcdef0123456789abcdef-1", Disk: oxide.NameOrId(source.Id),
		Description: mark(owner, "oxide-2", naming.KindSnapshot),
	}}))(p.t)

	must(rack.ImageCreate(ctx, oxide.ImageCreateParams{Project: project, Body: &oxide.ImageCreate{
		Name: "talos-1-13-5-376567988ad3-amd64-abcdefghij", Os: "talos", Version: "1.13.5",
		Description: mark(owner, "oxide", naming.KindImage),
		Source:      oxide.ImageSource{Value: oxide.ImageSourceSnapshot{Id: snapshot.Id}},
	}}))(p.t)

	for name, description := range map[string]string{
		"ip0-abcdefghij-workers-aaaaaa": mark(other, "oxide", naming.KindIP),
		"ip1-abcdefghij-workers-aaaaaa": mark(owner, "oxide-2", naming.KindIP),
		"ip2-abcdefghij-workers-aaaaaa": mark(owner, "oxide", naming.KindIP) + " and more",
	} {
		must(rack.FloatingIpCreate(ctx, oxide.FloatingIpCreateParams{Project: project, Body: &oxide.FloatingIpCreate{
			Name: oxide.Name(name), Description: description,
		}}))(p.t)
	}

	off := false
	for name, description := range map[string]string{
		"workers-aaaaaa": mark(other, "oxide", naming.KindInstance),
		"workers-aaaaab": mark(owner, "oxide-2", naming.KindInstance),
		"workers-aaaaac": "A machine that no provider made.",
	} {
		must(rack.InstanceCreate(ctx, oxide.InstanceCreateParams{Project: project, Body: &oxide.InstanceCreate{
			Name: oxide.Name(name), Hostname: oxide.Hostname(name), Description: description, Ncpus: 1, Memory: 1 << 30, Start: &off,
			NetworkInterfaces: oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}},
			Disks: []oxide.InstanceDiskAttachment{{Value: oxide.InstanceDiskAttachmentCreate{
				Name: oxide.Name("data1-" + name), Description: description, Size: 1 << 30,
				DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{DiskSource: blank}},
			}}},
		}}))(p.t)
	}

	return describe(p.t, p.inventory())
}

func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}

		return value
	}
}

// describe is what the rack says of each object.
func describe(t *testing.T, r operator.Rack) foreign {
	t.Helper()

	all := foreign{}

	write := func(id string, object any) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}

		all[id] = string(text)
	}

	for _, o := range r.Instances {
		write(o.Id, o)
	}

	for _, o := range r.Disks {
		write(o.Id, o)
	}

	for _, o := range r.Snapshots {
		write(o.Id, o)
	}

	for _, o := range slices.Concat(r.ProjectImages, r.SiloImages) {
		write(o.Id, o)
	}

	for _, o := range r.FloatingIPs {
		// One that a class lists comes and goes.
		o.InstanceId, o.TimeModified = "", nil
		write(o.Id, o)
	}

	return all
}

// check compares what is there with what was.
func (f foreign) check(t *testing.T, now operator.Rack) {
	t.Helper()

	all := describe(t, now)

	for id, before := range f {
		if all[id] != before {
			t.Errorf("a foreign object was touched:\n  it was %s\n  it is %q", before, all[id])
		}
	}
}

// without is the inventory less what is foreign.
func (f foreign) without(r operator.Rack) operator.Rack {
	return operator.Rack{
		Instances:     slices.DeleteFunc(r.Instances, func(o oxide.Instance) bool { return f[o.Id] != "" }),
		Disks:         slices.DeleteFunc(r.Disks, func(o oxide.Disk) bool { return f[o.Id] != "" }),
		Snapshots:     slices.DeleteFunc(r.Snapshots, func(o oxide.Snapshot) bool { return f[o.Id] != "" }),
		ProjectImages: slices.DeleteFunc(r.ProjectImages, func(o oxide.Image) bool { return f[o.Id] != "" }),
		SiloImages:    slices.DeleteFunc(r.SiloImages, func(o oxide.Image) bool { return f[o.Id] != "" }),
		FloatingIPs:   slices.DeleteFunc(r.FloatingIPs, func(o oxide.FloatingIp) bool { return f[o.Id] != "" }),
	}
}
