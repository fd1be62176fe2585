package main

import (
	"cmp"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	stored "github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

const (
	// crashProvider is the provider ID in crash tests.
	crashProvider = "oxide"
	// restWithin is how long a run may take to come to rest.
	restWithin = 4 * time.Minute
)

// crashRun is one run of a scenario on a site of its own.
type crashRun struct {
	*place

	calls *callWatch
	rules *rules
	env   map[string]string
	// first and then are the binaries before and after the restart.
	first, then string
	// outages says that the rack may be away.
	outages bool
	daemon  *daemon
	// standby, if there is one, takes over from a daemon that was killed.
	standby *daemon
	owner   string
	foreign foreign

	restarted bool
}

func newCrashRun(t *testing.T, sc scenario, point *killPoint) *crashRun {
	t.Helper()

	calls := newCallWatch(point)
	cfg := sc.site
	cfg.Rack.BeforeCall, cfg.Rack.AfterCall = calls.rackBefore, calls.rackAfter

	r := &crashRun{place: newPlace(t, cfg), calls: calls, outages: sc.outages, first: cmp.Or(sc.first, binary), then: cmp.Or(sc.then, binary)}
	r.rules = newRules(r.place)

	calls.mu.Lock()
	calls.site, calls.rules = r.Site, r.rules
	calls.mu.Unlock()

	r.Omni.SetHooks(calls.omniBefore, calls.omniAfter)

	r.env = r.place.env(crashProvider)
	r.env["SCRATCH_GRACE"], r.env["SETTLE_TIME"] = "1s", "1s"
	maps.Copy(r.env, sc.env)

	if sc.replicas {
		// Whoever takes over is not told that it is to end soon what only the janitor can.
		r.env["JANITOR_GRACE"] = "2s"
		r.env["LEASE_DURATION"], r.env["LEASE_RENEW_EVERY"], r.env["LEASE_STOP_AFTER"] = "2s", "500ms", "1500ms"
	} else {
		// One process at a time, as the test sees to it: nobody need wait for a lease
		// to run out.
		r.env["LEASE"] = "off"
	}

	r.owner = r.makeOwner()
	r.foreign = makeForeign(r.place, r.owner)

	return r
}

// makeOwner stores the owner that the daemon will work for, so that its marks
// can be imitated before it runs.
func (r *crashRun) makeOwner() string {
	r.t.Helper()

	var owner provider.Owner

	kind := owner.ResourceDefinition()
	*owner.Metadata() = resource.NewMetadata(kind.DefaultNamespace, kind.Type, "owner", resource.VersionUndefined)
	owner.TypedSpec().Value = &stored.OwnerSpec{Id: naming.NewOwner()}

	if err := r.Omni.AdminState().Create(r.t.Context(), &owner); err != nil {
		r.t.Fatal(err)
	}

	return owner.TypedSpec().Value.GetId()
}

// begin starts the daemon.
func (r *crashRun) begin() {
	r.t.Helper()

	r.daemon = startBy(r.t, r.env, r.first)

	r.calls.aim(r.daemon)

	if r.env["LEASE"] != "off" {
		r.eventually("the first to hold the lease", r.daemon.holds)
		r.standby = start(r.t, r.env)
		r.eventually("the second to stand by", r.standby.standsBy)
	}
}

// until waits for a condition, starts the daemon again once it was killed, and
// looks after what must be true at every moment.
func (r *crashRun) until(what string, holds func() bool) {
	r.t.Helper()

	deadline := time.Now().Add(restWithin)

	for {
		r.tend()

		if r.inSight() {
			r.always()

			if holds() {
				return
			}
		}

		if time.Now().After(deadline) {
			r.t.Fatalf("waited %s for %s\nrequests: %+v\n%s", restWithin, what, r.requests(), r.ours())
		}

		time.Sleep(100 * time.Millisecond)
	}
}

func (r *crashRun) tend() {
	r.t.Helper()

	select {
	case <-r.daemon.done:
	default:
		return
	}

	if !r.calls.killed() {
		// The process is dead a moment before its killer says so.
		select {
		case <-r.calls.fired:
		case <-time.After(5 * time.Second):
			r.t.Fatalf("the daemon ended by itself: %v", r.daemon.err)
		}
	}

	if r.restarted {
		r.t.Fatalf("the daemon ended again: %v", r.daemon.err)
	}

	r.restarted = true
	// What only the janitor can end is to be ended soon.
	r.env["JANITOR_GRACE"] = "1s"
	r.daemon = startBy(r.t, r.env, r.then)

	close(r.calls.again)
}

// inSight says whether the rack lets anybody look at it now.
func (r *crashRun) inSight() bool {
	if !r.outages {
		return true
	}

	_, err := r.Operator.Inventory(r.t.Context())

	return err == nil
}

// inventory is what the rack holds, as soon as it lets anybody look.
func (r *crashRun) inventory() operator.Rack {
	r.t.Helper()

	if !r.outages {
		return r.place.inventory()
	}

	var left operator.Rack

	r.eventually("the rack to be back", func() bool {
		var err error

		left, err = r.Operator.Inventory(r.t.Context())

		return err == nil
	})

	return left
}

// always checks what may not be otherwise even for a moment.
func (r *crashRun) always() {
	r.t.Helper()

	seen := map[string]string{}
	let := r.rules.letGo()
	ours := r.ours()

	r.rules.nothingOf(let, ours)

	for _, i := range ours.Instances {
		mark, ok := naming.Parse(i.Description)
		if !ok || mark.Owner != r.owner || mark.Provider != crashProvider || mark.Kind != naming.KindInstance {
			r.t.Fatalf("instance %q has come up without the daemon's mark: %q", i.Name, i.Description)
		}

		if other := seen[mark.Key]; other != "" {
			r.t.Fatalf("one request has two instances: %s and %s", other, i.Id)
		}

		seen[mark.Key] = i.Id
	}
}

// ours is what the project and the silo hold besides foreign objects.
func (r *crashRun) ours() leftovers { return leftovers{r.foreign.without(r.inventory())} }

// released counts the finalizers that the janitor has removed: the SDK destroys
// the state of a request and then removes the finalizer, and when it dies in
// between it takes the missing state for a request that it never began.
func (r *crashRun) released() int {
	const done = "done: removing the finalizer of a request"

	n := strings.Count(r.daemon.log(), done)
	if r.standby != nil {
		n += strings.Count(r.standby.log(), done)
	}

	return n
}

// leftOver lists what the daemon has in Omni besides what lives as long as the
// provider itself.
func (r *crashRun) leftOver() []string {
	r.t.Helper()

	ctx, st := r.t.Context(), r.Omni.AdminState()

	var out []string

	states := must(safe.StateListAll[*provider.Instance](ctx, st))(r.t)
	for s := range states.All() {
		out = append(out, "the state of request "+s.Metadata().ID())
	}

	statuses := must(safe.StateListAll[*infra.MachineRequestStatus](ctx, st))(r.t)
	for s := range statuses.All() {
		out = append(out, "the status of request "+s.Metadata().ID())
	}

	patches := must(safe.StateListAll[*infra.ConfigPatchRequest](ctx, st))(r.t)
	for s := range patches.All() {
		out = append(out, "config patch "+s.Metadata().ID())
	}

	// The living process may have a record of its own.
	if runs := must(safe.StateListAll[*provider.Run](ctx, st))(r.t); runs.Len() > 1 {
		out = append(out, "the record of an ended import run")
	}

	return out
}

func crashClass(extra string) string { return "project: " + site.Project + "\n" + extra }
