package rack

import (
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func (r *rig) inspect(id string) InstanceState {
	r.t.Helper()

	in, found := r.Inspect(id)
	if !found {
		r.t.Fatalf("no instance %s", id)
	}

	return in
}

func withMigration(c *Config) {
	onlyVMs(c)
	c.Latencies.Migrate = c.Latencies.Start
	c.Sleds = DefaultSleds(2)
}

// A running instance changes its sled while its guest goes on; meanwhile both
// sleds hold its place, and calls are answered as the table says.
func TestMigration(t *testing.T) {
	g := &recorder{off: make(chan struct{})}
	r, step := newStepped(t, withMigration, func(c *Config) { c.Booter = g })
	i := r.instance("i")
	must(0, r.startInstance(i.Id))(t)
	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)
	eventually(t, "guest up", func() bool { return g.running.Load() == 1 })

	before := r.inspect(i.Id)
	must(0, r.Migrate(i.Id))(t)

	during := r.inspect(i.Id)
	if during.RunState != "migrating" || during.MigrationID == "" || during.Sled != before.Sled || during.MigrationTarget == before.Sled {
		t.Errorf("while it migrates it is %+v", during)
	}

	for n, sl := range r.sleds {
		if sl.cpus != 2 {
			t.Errorf("sled %d holds %d CPUs", n, sl.cpus)
		}
	}

	must(0, r.startInstance(i.Id))(t) // nothing to do
	wantError(t, r.reboot(i.Id), 400, "InvalidRequest", "migrating")
	wantError(t, r.deleteInstance(i.Id), 400, "InvalidRequest", "not yet fully stopped")

	if err := r.Migrate(i.Id); err == nil {
		t.Error("it migrates twice at once")
	}

	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)

	after := r.inspect(i.Id)
	if after.Sled != during.MigrationTarget || after.MigrationID != "" || g.boots.Load() != 1 || g.running.Load() != 1 {
		t.Errorf("after it migrated it is %+v, guest booted %d times", after, g.boots.Load())
	}

	if c := must(r.client.UtilizationView(t.Context()))(t); *c.Provisioned.Cpus != 2 {
		t.Errorf("charged is %+v", c.Provisioned)
	}
}

// A stop waits for the end of a migration; a crash does not.
func TestStopAndCrashWhileMigrating(t *testing.T) {
	r, step := newStepped(t, withMigration)
	i := r.instance("i", func(b *oxide.InstanceCreate) { b.AutoRestartPolicy = oxide.InstanceAutoRestartPolicyNever })
	must(0, r.startInstance(i.Id))(t)
	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)

	must(0, r.Migrate(i.Id))(t)
	must(0, r.stopInstance(i.Id))(t)

	if st := r.runState(i.Id); st != oxide.InstanceStateMigrating {
		t.Errorf("it is %s", st)
	}

	step()
	r.reaches(i.Id, oxide.InstanceStateStopping)
	step()
	r.reaches(i.Id, oxide.InstanceStateStopped)

	must(0, r.startInstance(i.Id))(t)
	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)
	must(0, r.Migrate(i.Id))(t)
	must(0, r.Crash(i.Id))(t)
	step() // two timers, one of them void
	step()
	r.reaches(i.Id, oxide.InstanceStateFailed)

	for n, sl := range r.sleds {
		if sl.cpus != 0 || sl.memory != 0 {
			t.Errorf("sled %d still holds %d CPUs", n, sl.cpus)
		}
	}
}

// Nowhere to go, nothing that runs, or disks that stay: no migration.
func TestWhatDoesNotMigrate(t *testing.T) {
	r := newRig(t, withMigration, func(c *Config) { c.Sleds = DefaultSleds(1) })
	i := r.instance("i")

	if err := r.Migrate(i.Id); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("a stopped one: %v", err)
	}

	must(0, r.startInstance(i.Id))(t)
	r.reaches(i.Id, oxide.InstanceStateRunning)

	if err := r.Migrate(i.Id); err == nil || !strings.Contains(err.Error(), "no other sled") {
		t.Errorf("with one sled: %v", err)
	}

	l := r.instance("l", func(b *oxide.InstanceCreate) { b.Disks = []oxide.InstanceDiskAttachment{localDisk("data", gib)} })
	must(0, r.startInstance(l.Id))(t)
	r.reaches(l.Id, oxide.InstanceStateRunning)

	if err := r.Migrate(l.Id); err == nil || !strings.Contains(err.Error(), "local disks") {
		t.Errorf("with a local disk: %v", err)
	}

	if status, e, _ := r.raw("POST", "/simulator/instances/"+l.Id+"/migrate", ""); status != 409 || !contains(e.Message, "local disks") {
		t.Errorf("by its endpoint: %d %+v", status, e)
	}
}

// A guest that reboots itself boots again, on the config disk of its start.
func TestGuestReboot(t *testing.T) {
	g := &recorder{off: make(chan struct{})}
	r := newRig(t, onlyVMs, func(c *Config) { c.Booter = g })
	i := r.instance("i")

	if err := r.GuestReboot(i.Id); err == nil {
		t.Error("a stopped one has rebooted")
	}

	must(0, r.startInstance(i.Id))(t)
	eventually(t, "guest up", func() bool { return g.running.Load() == 1 })

	id := r.fault(Fault{Condition: ConditionStuck, Kind: kindInstance, State: "rebooting"})

	if status, e, _ := r.raw("POST", "/simulator/instances/"+i.Id+"/reboot", ""); status != 204 {
		t.Fatalf("%d %+v", status, e)
	}

	if st := r.runState(i.Id); st != oxide.InstanceStateRebooting {
		t.Errorf("it is %s", st)
	}

	r.RemoveFault(id)
	eventually(t, "guest up again", func() bool { return g.boots.Load() == 2 && g.running.Load() == 1 })

	if in := r.inspect(i.Id); in.Intent != string(intentRunning) {
		t.Errorf("it is %+v", in)
	}
}
