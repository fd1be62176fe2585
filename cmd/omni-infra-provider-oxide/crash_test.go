package main

import (
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// Invariant: a restart at any instant is harmless. A kill in the middle of an
// upload leaves a disk that plain delete refuses; it must neither block the next
// upload nor stay.
func TestAKillDuringAnUploadLeavesNothing(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{Factory: factory.Config{Rate: 2 << 20}})
	env := p.env("oxide")
	d := start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 2)
	p.eventually("the upload to be under way", func() bool { return p.Rack.CallCount("disk_bulk_write_import") > 3 })

	d.kill()

	if left := p.inventory(); len(left.Disks) != 1 || left.Images() != 0 {
		t.Fatalf("the kill came at the wrong time: %d disks, %d images", len(left.Disks), left.Images())
	}

	start(t, env)
	p.waitJoined("workers", 2)
	p.eventually("the scratch of the killed process to be removed", func() bool {
		left := p.inventory()

		return len(left.Disks) == 2 && len(left.Snapshots) == 0 && left.Images() == 1 && len(left.Instances) == 2
	})

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()
}

// Invariant: an upload needs no file, so that neither a small temporary directory
// nor a read-only file system matters, however often it is cut off.
func TestAnUploadWritesNoFile(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{Factory: factory.Config{Rate: 4 << 20}})
	env := p.env("oxide")
	env["TMPDIR"], env["HOME"] = "/nowhere", "/nowhere"

	// A single byte in any file would end the process.
	begin := func() *daemon { return startBy(t, env, "sh", "-c", `ulimit -f 0 && exec "$0"`, binary) }
	d := begin()

	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)

	for range 5 {
		before, writes := p.uploads(), p.Rack.CallCount("disk_bulk_write_import")
		p.eventually("an upload to be under way", func() bool {
			return p.uploads() > before && p.Rack.CallCount("disk_bulk_write_import") > writes+2
		})
		d.kill()

		d = begin()
	}

	p.waitJoined("workers", 1)
	p.set("workers", "oxide", 0)
	p.waitNothingLeft()

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAKillRightAfterAnInstanceWasCreatedMakesNoSecondOne(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	d := start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.eventually("an instance", func() bool { return len(p.inventory().Instances) > 0 })

	d.kill()

	start(t, env)
	p.waitJoined("workers", 1)

	if left := p.inventory(); len(left.Instances) != 1 || len(left.Disks) != 1 {
		t.Errorf("%d instances, %d disks", len(left.Instances), len(left.Disks))
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()
}
