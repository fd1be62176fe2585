package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
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
	restWithin = 90 * time.Second
	// stuckFor is how long a request must have looked stuck to be called so: a
	// daemon at work passes through the same state within one call.
	stuckFor = 3 * time.Second
)

// crashRun is one run of a scenario on a site of its own.
type crashRun struct {
	*place

	calls   *callWatch
	env     map[string]string
	daemon  *daemon
	owner   string
	foreign foreign

	restarted bool
	// stuck is since when a request has had nothing but our finalizer.
	stuck map[string]time.Time
	// released counts the finalizers that were removed by hand.
	released int
}

func newCrashRun(t *testing.T, sc scenario, point *killPoint) *crashRun {
	t.Helper()

	calls := newCallWatch(point)
	cfg := sc.site
	cfg.Rack.BeforeCall, cfg.Rack.AfterCall = calls.rackBefore, calls.rackAfter

	r := &crashRun{place: newPlace(t, cfg), calls: calls, stuck: map[string]time.Time{}}

	calls.mu.Lock()
	calls.site = r.Site
	calls.mu.Unlock()

	r.Omni.SetHooks(calls.omniBefore, calls.omniAfter)

	r.env = r.place.env(crashProvider)
	r.env["SCRATCH_GRACE"], r.env["SETTLE_TIME"] = "1s", "1s"
	// One process at a time, as the test sees to it: nobody need wait for a lease
	// to run out, and its calls are not among those that are counted.
	r.env["LEASE"] = "off"
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

	r.daemon = start(r.t, r.env)

	r.calls.mu.Lock()
	r.calls.victim = r.daemon
	r.calls.mu.Unlock()
}

// until waits for a condition, starts the daemon again once it was killed, and
// looks after what must be true at every moment.
func (r *crashRun) until(what string, holds func() bool) {
	r.t.Helper()

	deadline := time.Now().Add(restWithin)

	for {
		r.tend()
		r.always()

		if holds() {
			return
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
	r.daemon = start(r.t, r.env)

	close(r.calls.again)
}

// always checks what may not be otherwise even for a moment.
func (r *crashRun) always() {
	r.t.Helper()

	seen := map[string]string{}

	for _, i := range r.ours().Instances {
		mark, ok := naming.Parse(i.Description)
		if !ok || mark.Owner != r.owner || mark.Provider != crashProvider || mark.Kind != naming.KindInstance {
			r.t.Fatalf("instance %q has come up without the daemon's mark: %q", i.Name, i.Description)
		}

		if other := seen[mark.Key]; other != "" {
			r.t.Fatalf("one request has two instances: %s and %s", other, i.Id)
		}

		seen[mark.Key] = i.Id
	}

	r.releaseStuck()
}

// ours is what the project and the silo hold besides foreign objects.
func (r *crashRun) ours() leftovers { return leftovers{r.foreign.without(r.inventory())} }

// releaseStuck removes the daemon's finalizer where the SDK has lost its way:
// it destroys the state of a request and then removes the finalizer, and when
// it dies in between it takes the missing state for a request that it never
// began. Nothing but exactly that is tolerated here.
func (r *crashRun) releaseStuck() {
	r.t.Helper()

	for _, request := range r.requests() {
		if !r.restarted || !request.TearingDown || !r.onlyFinalizer(request) {
			delete(r.stuck, request.ID)

			continue
		}

		since, known := r.stuck[request.ID]
		if !known {
			r.stuck[request.ID] = time.Now()
		}

		if !known || time.Since(since) < stuckFor {
			continue
		}

		r.t.Logf("request %s was left with nothing but the finalizer: removing it", request.ID)

		err := r.Omni.AdminState().RemoveFinalizer(r.t.Context(), infra.NewMachineRequest(request.ID).Metadata(), crashFinalizer)
		if err != nil {
			r.t.Fatal(err)
		}

		r.released++

		delete(r.stuck, request.ID)
	}
}

const crashFinalizer = crashProvider + ".ProvisionController"

// onlyFinalizer says that our finalizer is all that there is of a request.
func (r *crashRun) onlyFinalizer(request operator.Request) bool {
	r.t.Helper()

	ctx, st := r.t.Context(), r.Omni.AdminState()

	held, err := st.Get(ctx, infra.NewMachineRequest(request.ID).Metadata())
	if err != nil || !held.Metadata().Finalizers().Has(crashFinalizer) || request.Stage != "" {
		return false
	}

	_, err = safe.StateGetByID[*provider.Instance](ctx, st, request.ID)

	return state.IsNotFoundError(err) && !strings.Contains(r.ours().String(), naming.RequestKey(request.ID))
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
