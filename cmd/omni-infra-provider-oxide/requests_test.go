package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// gentle has the daemon of a crash run look for orphans often.
func gentle(env map[string]string) map[string]string {
	env["JANITOR_GRACE"], env["SETTLE_TIME"], env["SCRATCH_GRACE"] = "1s", "1s", "1s"

	return env
}

// Invariant: a request is given up only while it is being removed and after its
// ID was typed; nothing of it is left in Omni, no call is made to the rack, and
// what is left there are orphans: with no other request in Omni they wait for a
// person, and the daemon stays in service.
func TestARequestIsGivenUpWithoutTheRack(t *testing.T) {
	t.Parallel()

	if err := provider.Bind(crashProvider); err != nil {
		t.Fatal(err)
	}

	r := &crashRun{place: newPlace(t, site.Config{})}
	env := gentle(r.env2())
	d := start(t, env)
	r.waitRegistered(crashProvider)
	r.set("workers", crashProvider, 1)
	r.waitJoined("workers", 1)

	id := r.requests()[0].ID
	r.refused(env, id, "is not being removed")
	r.refused(env, "no-such-request", "has nothing of a request")

	d.kill()
	r.set("workers", crashProvider, 0)
	r.eventually("the request to be torn down", func() bool { return r.requests()[0].TearingDown })

	nowhere := gentle(r.env2())
	nowhere["OXIDE_HOST"] = "http://127.0.0.1:1"

	if _, errs, code := ask(t, nowhere, "yes\n", "requests", "release", id); code != exitRefused || !strings.Contains(errs, "Type the ID") {
		t.Errorf("a wrong answer: exit code %d, %s", code, errs)
	}

	instance := must(r.Operator.Rack().InstanceListAllPages(t.Context(), oxide.InstanceListParams{Project: site.Project}))(t)[0]
	calls := r.rackCalls()

	out, errs, code := ask(t, nowhere, id+"\n", "requests", "release", id)
	if code != 0 || !strings.Contains(out, "is given up") {
		t.Fatalf("exit code %d: %s\n%s", code, out, errs)
	}

	for _, part := range []string{instance.Id, string(instance.Name), naming.Disk("boot", id)} {
		if !strings.Contains(errs, part) {
			t.Errorf("what may remain does not name %q:\n%s", part, errs)
		}
	}

	if n := r.rackCalls() - calls; n != 0 {
		t.Errorf("%d calls were made to the rack", n)
	}

	r.eventually("the request to be gone", func() bool { return len(r.requests()) == 0 })

	if left := r.leftOver(); len(left) > 0 {
		t.Errorf("left in Omni: %q", left)
	}

	r.refused(nowhere, id, "has nothing of a request")

	r.waitsForAPerson(env)
}

// waitsForAPerson starts the daemon where Omni lists no request and one instance
// is left, and then removes that by hand.
func (r *crashRun) waitsForAPerson(env map[string]string) {
	r.t.Helper()

	d := start(r.t, env)

	r.eventually("health to tell of the brake", func() bool {
		h, err := safe.StateGetByID[*infra.ProviderHealthStatus](r.t.Context(), r.Omni.AdminState(), crashProvider)

		return err == nil && strings.Contains(h.TypedSpec().Value.GetError(), "Omni lists no machine request at all")
	})

	if ready, why := d.ready(); !ready {
		r.t.Errorf("the daemon is not ready: %s", why)
	}

	if n := len(r.inventory().Instances); n != 1 {
		r.t.Errorf("%d instances are left", n)
	}

	if out, errs, code := ask(r.t, env, "", "orphans", "delete", "--yes", "--omni-lists-nothing=1"); code != 0 {
		r.t.Errorf("exit code %d: %s\n%s", code, out, errs)
	}

	if n := r.inventory().Leftovers(); n != 0 {
		r.t.Errorf("%d objects are left", n)
	}

	r.eventually("the daemon to be well again", func() bool { return strings.Contains(d.log(), "well again") })
}

// rackCalls counts what was asked of the rack by our program.
func (r *crashRun) rackCalls() int {
	n := 0

	for _, c := range r.Rack.Calls() {
		if strings.HasPrefix(c.UserAgent, "omni-infra-provider-oxide/") {
			n++
		}
	}

	return n
}

func (r *crashRun) env2() map[string]string { return r.place.env(crashProvider) }

func (r *crashRun) refused(env map[string]string, id, why string) {
	r.t.Helper()

	if _, errs, code := ask(r.t, env, id+"\n", "requests", "release", id); code != exitRefused || !strings.Contains(errs, why) {
		r.t.Errorf("exit code %d, want a refusal as it %s: %s", code, why, errs)
	}
}

// Invariant: nothing leaks when somebody removes a request from Omni by force.
// As long as its machine counts as connected it is left alone, and the log says
// how to end that; then it is removed with its disks and its state, and the
// others stay.
func TestAMachineWhoseRequestWasRemovedByForceIsRemoved(t *testing.T) {
	t.Parallel()

	if err := provider.Bind(crashProvider); err != nil {
		t.Fatal(err)
	}

	r := &crashRun{place: newPlace(t, site.Config{})}
	d := start(t, gentle(r.env2()))
	r.waitRegistered(crashProvider)
	r.set("workers", crashProvider, 2)
	r.waitJoined("workers", 2)

	id, machine := r.requests()[0].ID, r.requests()[0].MachineID
	r.force(id)
	r.eventually("the machine to be told", func() bool {
		return strings.Contains(d.log(), "if it is to go, `omnictl delete link "+machine+"`")
	})

	for _, i := range r.inventory().Instances {
		if string(i.Name) == id {
			must(r.Operator.Rack().InstanceStop(t.Context(), oxide.InstanceStopParams{Instance: oxide.NameOrId(i.Id)}))(t)
		}
	}

	// The flag of a machine whose request is gone moves no more.
	ptr := siderolink.NewLink(machine, nil).Metadata()
	must(r.Omni.AdminState().Teardown(t.Context(), ptr))(t)
	r.eventually("the machine to be removed", func() bool {
		return !strings.Contains(leftovers{r.inventory()}.String(), naming.RequestKey(id))
	})
	r.eventually("its state to be destroyed", func() bool { return !strings.Contains(strings.Join(r.leftOver(), "\n"), id) })

	// Its set has asked for another one.
	r.waitJoined("workers", 2)
	r.set("workers", crashProvider, 0)
	r.waitNothingLeft()
}

// force takes a request out of Omni with everything that holds it.
func (r *crashRun) force(id string) {
	r.t.Helper()

	ctx, st, ptr := r.t.Context(), r.Omni.AdminState(), infra.NewMachineRequest(id).Metadata()

	if _, err := st.Teardown(ctx, ptr); err != nil {
		r.t.Fatal(err)
	}

	for {
		held := must(st.Get(ctx, ptr))(r.t)
		if err := st.RemoveFinalizer(ctx, ptr, []resource.Finalizer(*held.Metadata().Finalizers())...); err != nil {
			r.t.Fatal(err)
		}

		if st.Destroy(ctx, ptr) == nil {
			return
		}
	}
}

// Invariant: scratch that the rack makes after its run was forgotten is removed,
// whatever state it is in.
func TestALateScratchDiskIsRemoved(t *testing.T) {
	t.Parallel()

	o := newOrphanage(t)
	start(t, gentle(o.env))
	o.waitRegistered(crashProvider)

	o.disk("oipo-scratch-abcdefghij-0badcafe", o.mark("image", naming.KindScratch),
		oxide.DiskSource{Value: oxide.DiskSourceImportingBlocks{BlockSize: 512}})

	began := time.Now()

	o.eventually("the disk to be removed", func() bool { return len(o.ours().Disks) == 0 })

	if took := time.Since(began); took < time.Second {
		t.Errorf("removed after %s, before the grace", took)
	}

	o.foreign.check(t, o.inventory())
}
