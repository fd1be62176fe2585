package rack

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// newStepped is a rack whose sagas wait to be let on, a step for each delay.
func newStepped(t *testing.T, change ...func(*Config)) (r *rig, step func()) {
	t.Helper()

	r = newRig(t, change...)
	steps := make(chan struct{})
	r.sleep = func(ctx context.Context, _ time.Duration) bool {
		select {
		case <-steps:
			return true
		case <-ctx.Done():
			return false
		}
	}

	return r, func() {
		t.Helper()

		select {
		case steps <- struct{}{}:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing waits for time to pass")
		}
	}
}

// inFlight runs a call that takes its time, and ends with the test.
func inFlight(t *testing.T, f func() error) (wait func()) {
	t.Helper()

	var wg sync.WaitGroup

	wg.Go(func() {
		if err := f(); err != nil {
			t.Error(short(err))
		}
	})
	t.Cleanup(wg.Wait)

	return wg.Wait
}

// What others see of objects while the saga that makes them is under way.
func TestObjectsWhileTheirSagaGoesOn(t *testing.T) {
	r, step := newStepped(t)
	ctx := t.Context()

	t.Run("importing disk", func(t *testing.T) {
		wait := inFlight(t, func() error {
			_, err := r.createDisk("imp", gib, importing())

			return err
		})

		var id string

		eventually(t, "the disk", func() bool {
			d, err := r.client.DiskView(ctx, oxide.DiskViewParams{Project: demo, Disk: "imp"})
			if err == nil {
				id = d.Id
			}

			return err == nil
		})

		wantError(t, r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Disk: oxide.NameOrId(id)}), 400, "InvalidRequest", `"creating"`)
		wantError(t, r.start(id), 400, "InvalidRequest", "creating")

		step()

		// The state shows before an import server has the disk.
		eventually(t, "import_ready", func() bool { return r.diskState(id) == "import_ready" })
		must(0, r.start(id))(t)
		wantError(t, r.write(id, 0, noise(512)), 500, "Internal", "")
		step()
		wait()
		must(0, r.write(id, 0, noise(512)))(t)
		must(0, r.stop(id))(t)

		wait = inFlight(t, func() error { return r.finalize(id, "fin") })

		eventually(t, "finalizing", func() bool { return r.diskState(id) == "finalizing" })

		s := must(r.snapshotNamed("fin"))(t)
		if s.State != oxide.SnapshotStateCreating {
			t.Errorf("snapshot is %s", s.State)
		}

		err := r.client.SnapshotDelete(ctx, oxide.SnapshotDeleteParams{Snapshot: oxide.NameOrId(s.Id)})
		wantError(t, err, 400, "InvalidRequest", "creating")
		wantError(t, r.finalize(id, ""), 400, "InvalidRequest", "finalizing")
		step()
		step()
		wait()
	})

	t.Run("snapshot of a detached disk", func(t *testing.T) {
		made := inFlight(t, func() error {
			_, err := r.createDisk("d", gib, blank(0))

			return err
		})

		step()
		made()

		d := must(r.client.DiskView(ctx, oxide.DiskViewParams{Project: demo, Disk: "d"}))(t)
		snap := func(name string) error {
			_, err := r.client.SnapshotCreate(ctx, oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{Name: oxide.Name(name), Disk: "d"}})

			return err
		}
		wait := inFlight(t, func() error { return snap("a") })

		eventually(t, "maintenance", func() bool { return r.diskState(d.Id) == "maintenance" })
		wantError(t, snap("b"), 409, "Conflict", "")
		wantError(t, r.client.DiskDelete(ctx, oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)}), 400, "InvalidRequest", "maintenance")

		step()
		wait()
	})

	t.Run("instance", func(t *testing.T) {
		wait := inFlight(t, func() error {
			_, err := r.createInstance("i")

			return err
		})

		var id string

		eventually(t, "the instance", func() bool {
			i, err := r.client.InstanceView(ctx, oxide.InstanceViewParams{Project: demo, Instance: "i"})
			if err == nil {
				id = i.Id
			}

			return err == nil
		})

		wantError(t, r.startInstance(id), 409, "Conflict", "being created")
		wantError(t, r.stopInstance(id), 400, "InvalidRequest", "still being created")
		wantError(t, r.deleteInstance(id), 400, "InvalidRequest", "not yet fully stopped")
		step()
		step()
		wait()

		gone := inFlight(t, func() error { return r.deleteInstance(id) })

		step()
		gone()
	})
}

// Invariant: of many creates of one name at once exactly one is made.
func TestOneNameIsGivenOnce(t *testing.T) {
	r := newRig(t)

	var (
		wg   sync.WaitGroup
		errs = make([]error, 16)
	)

	for n := range errs {
		wg.Go(func() {
			_, errs[n] = r.createInstance("i", func(b *oxide.InstanceCreate) { b.BootDisk = newDiskNamed(fmt.Sprintf("boot%d", n), gib) })
		})
	}

	wg.Wait()

	made := 0

	for _, err := range errs {
		if err == nil {
			made++
		} else {
			wantError(t, err, 400, "ObjectAlreadyExists", `already exists: instance "i"`)
		}
	}

	if s := r.Summary(); made != 1 || s.Disks["attached"] != 1 || len(s.Disks) != 1 {
		t.Errorf("%d made, disks %v", made, s.Disks)
	}
}

func TestSubnets(t *testing.T) {
	r := newRig(t)

	create := func(name, block string) error {
		_, err := r.client.VpcSubnetCreate(t.Context(), oxide.VpcSubnetCreateParams{Project: "demo", Vpc: "default", Body: &oxide.VpcSubnetCreate{
			Name: oxide.Name(name), Ipv4Block: oxide.Ipv4Net(block),
		}})

		return err
	}

	must(0, create("small", "10.1.0.0/26"))(t)
	wantError(t, create("public", "192.0.2.0/24"), 400, "InvalidRequest", "private")
	wantError(t, create("over", "172.30.2.0/24"), 400, "InvalidRequest", "conflicts")
	wantError(t, create("small", "10.3.0.0/24"), 400, "ObjectAlreadyExists", `vpc-subnet "small"`)
}
