package rack

import (
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func (r *rig) viewProject(p string) (*oxide.Project, error) {
	return r.client.ProjectView(r.t.Context(), oxide.ProjectViewParams{Project: oxide.NameOrId(p)})
}

func TestProjectIsRenamed(t *testing.T) {
	r := newRig(t)
	p := must(r.viewProject("demo"))(t)
	r.fault(Fault{Event: EventProjectRenamed, Project: "demo", To: "other"})

	_, err := r.viewProject("demo")
	wantError(t, err, 404, "ObjectNotFound", "")

	if got := must(r.viewProject("other"))(t); got.Id != p.Id {
		t.Errorf("it is %+v", got)
	}

	if _, err := r.AddFault(Fault{Event: EventProjectRenamed, Project: "demo", To: "third"}); err == nil || len(r.Faults()) != 1 {
		t.Errorf("a project that is not there was renamed: %v", err)
	}
}

// A project that is deleted behind everybody's back takes all with it, and all
// that it cost.
func TestProjectIsDeleted(t *testing.T) {
	r := newRig(t, onlyVMs)
	snap := r.upload("u", gib, noise(4096))
	image := must(r.createImage(demo, "img", snap.Id))(t)
	i := r.instance("i", func(b *oxide.InstanceCreate) { b.BootDisk = newDiskNamed("boot", gib) })
	must(0, r.startInstance(i.Id))(t)
	r.floatingIP("f")
	p := must(r.viewProject("demo"))(t)

	r.fault(Fault{Event: EventProjectDeleted, Project: "demo"})

	_, err := r.viewProject(p.Id)
	wantError(t, err, 404, "ObjectNotFound", "project")

	_, err = r.client.InstanceView(t.Context(), oxide.InstanceViewParams{Instance: oxide.NameOrId(i.Id)})
	wantError(t, err, 404, "ObjectNotFound", "instance")

	_, err = r.client.ImageView(t.Context(), oxide.ImageViewParams{Image: oxide.NameOrId(image.Id)})
	wantError(t, err, 404, "ObjectNotFound", "image")

	s := r.Summary()
	if len(s.Disks)+len(s.Instances)+s.Snapshots+s.ProjectImages+s.Projects != 0 || s.Provisioned != (resourceCounts{}) {
		t.Errorf("left: %+v", s)
	}
}

func TestInstanceEvents(t *testing.T) {
	r := newRig(t, onlyVMs)
	i := r.instance("i", func(b *oxide.InstanceCreate) { b.BootDisk = newDiskNamed("boot", gib) })
	up := func() {
		t.Helper()
		must(0, r.startInstance(i.Id))(t)
		r.reaches(i.Id, oxide.InstanceStateRunning)
	}

	up()
	r.fault(Fault{Event: EventInstanceHalted, Instance: "i"})
	r.reaches(i.Id, oxide.InstanceStateStopped)

	up()
	sled, _ := r.Inspect(i.Id)
	r.fault(Fault{Event: EventInstanceMigrated, Instance: "i"})
	eventually(t, "the other sled", func() bool {
		now, _ := r.Inspect(i.Id)

		return now.Sled != sled.Sled && now.RunState == "running"
	})

	r.fault(Fault{Event: EventInstanceReboot, Instance: i.Id})
	r.reaches(i.Id, oxide.InstanceStateRunning)
	r.fault(Fault{Event: EventInstanceCrashed, Instance: i.Id})
	eventually(t, "the failure", func() bool { return r.runState(i.Id) != oxide.InstanceStateRunning })
	r.reaches(i.Id, oxide.InstanceStateRunning) // by itself

	r.fault(Fault{Event: EventInstanceDeleted, Instance: "i"})

	_, err := r.client.InstanceView(t.Context(), oxide.InstanceViewParams{Instance: oxide.NameOrId(i.Id)})
	wantError(t, err, 404, "ObjectNotFound", "")

	if s := r.Summary(); s.Disks["detached"] != 1 || s.Provisioned.CPUs != 0 {
		t.Errorf("left: %+v", s)
	}

	if _, err := r.AddFault(Fault{Event: EventInstanceCrashed, Instance: "i"}); err == nil {
		t.Error("an instance that is gone crashed")
	}
}

func TestDiskEvents(t *testing.T) {
	r := newRig(t)
	d := r.disk("d", gib, blank(0))
	r.fault(Fault{Event: EventDiskFaulted, Disk: "d"})

	if st := r.diskState(d.Id); st != "faulted" {
		t.Errorf("it is %s", st)
	}

	r.fault(Fault{Event: EventDiskDeleted, Disk: d.Id})

	if s := r.Summary(); len(s.Disks) != 0 || s.Provisioned.Storage != 0 {
		t.Errorf("left: %+v", s)
	}
}

// An event can wait for a call, before whose work it happens, or for its time.
func TestEventsThatWait(t *testing.T) {
	clock := NewStepClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := newRig(t, func(c *Config) { c.Clock, c.TimeScale, c.Latencies = clock, 1, &Latencies{} })
	d := r.disk("d", gib, blank(0))

	r.fault(Fault{Event: EventDiskFaulted, Disk: "d", Operation: "disk_view", Skip: 1})
	r.fault(Fault{Event: EventProjectRenamed, Project: "demo", To: "later", From: Duration(time.Hour)})

	for n, want := range []string{"detached", "faulted"} {
		if st := r.diskState(d.Id); st != want {
			t.Errorf("view %d: it is %s", n, st)
		}
	}

	must(r.viewProject("demo"))(t)
	clock.Sleepers(t.Context(), 1)
	clock.Step(time.Hour)
	eventually(t, "the other name", func() bool { _, err := r.viewProject("later"); return err == nil })

	if f := r.Faults(); f[0].Fired != 1 || f[1].Fired != 1 {
		t.Errorf("%+v", f)
	}
}
