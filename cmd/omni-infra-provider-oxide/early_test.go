package main

import (
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// Invariant: a daemon that starts before its rack has come up waits, is not
// ready, says so in one line, in its probe and on its requests' page, and goes
// on by itself when the rack's API opens.
func TestADaemonThatStartsBeforeItsRack(t *testing.T) {
	t.Parallel()

	d, err := plan.Default(2)
	if err != nil {
		t.Fatal(err)
	}

	late := d.Sleds[1]
	for i := range late.Disks {
		late.Disks[i].Reports = plan.Never
	}

	p := newPlace(t, site.Config{RackLater: true, RackDescription: &d})
	daemon := start(t, p.env("oxide"))

	p.eventually("the probe to say so", func() bool {
		ready, why := daemon.ready()

		return !ready && strings.Contains(why, "the rack's API does not answer yet at "+p.RackURL)
	})
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.eventually("the request to say so", func() bool {
		r := p.requests()

		return len(r) == 1 && r[0].Stage == "PROVISIONING" && strings.Contains(r[0].Status, "connection refused")
	})

	if told := strings.Count(daemon.log(), "not ready: the rack's API does not answer yet"); told != 1 {
		t.Errorf("told %d times", told)
	}

	for _, disk := range late.Disks[:plan.MinPools] {
		if err := p.RackSetup.Report(late.Serial, disk.Serial); err != nil {
			t.Fatal(err)
		}
	}

	if err := p.WaitRack(t.Context()); err != nil {
		t.Fatal(err)
	}

	p.eventually("it to be ready", func() bool { ready, _ := daemon.ready(); return ready })
	p.waitJoined("workers", 1)
	p.set("workers", "oxide", 0)
	p.waitNothingLeft()

	if code := daemon.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
