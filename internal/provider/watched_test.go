package provider

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// joined has Omni know the machine of a request.
func (b *bench) joined(id string) {
	b.t.Helper()

	_, err := safe.StateUpdateWithConflicts(b.t.Context(), b.admin, infra.NewMachineRequestStatus(id).Metadata(),
		func(s *infra.MachineRequestStatus) error {
			s.TypedSpec().Value.Id = "0a1b2c3d-0000-4000-8000-00000000000a"

			return nil
		}, state.WithUpdateOwner(testID+sdkController))
	b.ok(err)
}

// runs says whether the request's instance runs.
func (b *bench) runs(id string) bool {
	i, found := b.sim.Inspect(b.stored(id).TypedSpec().Value.GetInstanceId())

	return found && i.RunState == "running"
}

func (b *bench) untilHealth(d *served, want string) {
	b.t.Helper()

	b.until("health to say "+want, func() bool { return d.healthText() == want })

	if !d.board.Ready() {
		b.t.Error("a machine's trouble makes the daemon unready")
	}
}

func (d *served) healthText() string {
	if err := d.board.Err(); err != nil {
		return err.Error()
	}

	return ""
}

// Invariant: a machine that stops after it was provisioned is seen by people, and
// left as it is unless its class says otherwise.
func TestAMachineThatStopsIsToldAndStartedOnlyIfItsClassSaysSo(t *testing.T) {
	t.Parallel()

	const other = "talos-workers-ghijkl"

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve()

		b.ask(theRequest)
		b.ask(other, class("project: demo\non_stopped: start\n"))

		for _, id := range []string{theRequest, other} {
			b.untilStage(id, stageProvisioned)
			b.joined(id)
			b.ok(b.rack.StopInstance(t.Context(), b.stored(id).TypedSpec().Value.GetInstanceId()))
		}

		b.until("the other to run again", func() bool { return b.runs(other) })
		b.untilHealth(d, "machines: stopped: "+theRequest)

		if b.runs(theRequest) {
			t.Error("a machine was started although its class leaves it")
		}

		if c := d.MachineCounts(); c.Watched != 2 || c.Stopped != 1 || c.Starts != 1 {
			t.Errorf("%+v", c)
		}

		for _, id := range []string{theRequest, other} {
			b.remove(id)
			b.untilReleased(id)
		}

		b.untilHealth(d, "")
		b.wantLeft(0, 0)
	})
}

func TestAMachineThatVanishesOrNeverJoinsIsTold(t *testing.T) {
	t.Parallel()

	const other = "talos-workers-ghijkl"

	bubble(t, func(t *testing.T, b *bench) {
		d := b.serve()

		for _, id := range []string{theRequest, other} {
			b.ask(id)
			b.untilStage(id, stageProvisioned)
		}

		b.joined(theRequest)

		id := b.stored(theRequest).TypedSpec().Value.GetInstanceId()
		b.ok(b.rack.StopInstance(t.Context(), id))
		b.until("it to be deleted by hand", func() bool { return b.rack.DeleteInstance(t.Context(), id) == nil })
		b.untilHealth(d, "machines: vanished from the rack: "+theRequest)
		b.untilHealth(d, "machines: vanished from the rack: "+theRequest+"; not joined Omni: "+other)

		if got := b.logText(); strings.Count(got, "found:vanished") != 1 || strings.Count(got, "found:unjoined") != 1 || !strings.Contains(got, id) {
			t.Errorf("logged\n%s", got)
		}
	})
}

// A stored step that this version does not know must never end as a machine that
// is not there, and if it did, this would tell.
func TestAProvisionedRequestWithoutAMachineIsTold(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		planned := b.plannedFor(theRequest)

		b.ask(theRequest)
		b.store(theRequest, "polish", planned)

		running := b.start()

		b.untilStage(theRequest, stageProvisioned)
		b.ok(running.stop())

		d := b.serve()
		b.until("health to tell of it", func() bool {
			return strings.Contains(d.healthText(), "machines: vanished from the rack: "+theRequest)
		})
	})
}

// Invariant: nothing is started that Omni no longer wants. A request that is given
// up while its start step runs gets no guest that joins Omni for nothing, and
// would stay in its list of links.
func TestARequestThatIsGivenUpDuringItsStartStepIsNotStarted(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		looked, removed := make(chan struct{}), make(chan struct{})

		var once sync.Once

		// The SDK goes on to the start step with the request as it was before.
		b.hook(&b.after, func(operation string) {
			if operation == "instance_create" {
				once.Do(func() {
					close(looked)
					<-removed
				})
			}
		})

		b.serve()
		b.ask(theRequest)
		<-looked
		b.remove(theRequest)
		close(removed)
		b.untilReleased(theRequest)
		b.wantLeft(0, 0)

		if n := b.sim.CallCount("instance_start"); n != 0 {
			b.t.Errorf("started %d times", n)
		}
	})
}

// What the published provider made is not ours to watch: an empty state of ours
// beside it says nothing.
func TestMachinesOfThePublishedProviderAreNotWatched(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		running := b.start()

		b.ask(theRequest)
		b.untilStage(theRequest, stageProvisioned)
		b.ok(running.stop())
		b.store(theRequest, "ensure_provider_id", &specs.InstanceSpec{})
		b.storePublished(theRequest, publishedForms()["new"])

		d := b.serve()
		b.pass(30 * time.Minute)

		if got := d.healthText(); !strings.HasPrefix(got, "stored states: made by the published provider") || strings.Contains(got, "machines:") {
			t.Errorf("health says %q", got)
		}

		if c := d.MachineCounts(); c.Watched != 0 {
			t.Errorf("%+v", c)
		}
	})
}
