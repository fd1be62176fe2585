package provider

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	omnires "github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// askIn makes a machine request of a machine set, as Omni does.
func (b *bench) askIn(set, id, text string) {
	b.t.Helper()

	r := infra.NewMachineRequest(id)
	r.Metadata().Labels().Set(omnires.LabelInfraProviderID, testID)
	r.Metadata().Labels().Set(omnires.LabelMachineRequestSet, set)
	*r.TypedSpec().Value = omnispecs.MachineRequestSpec{TalosVersion: "1.13.5", ProviderData: text}

	b.ok(b.admin.Create(b.t.Context(), r))
}

// memberCounts are the numbers of members of the project's groups, by name.
func (b *bench) memberCounts() map[string]int {
	b.t.Helper()

	groups, err := b.rack.ListAntiAffinityGroups(b.t.Context(), b.project.Id)
	b.ok(err)

	counts := map[string]int{}

	for _, g := range groups {
		members, err := b.rack.ListAntiAffinityGroupMembers(b.t.Context(), g.Id)
		b.ok(err)

		counts[string(g.Name)] = len(members)
	}

	return counts
}

func (b *bench) groupName(set, policy string, number uint32) string {
	return naming.SetGroup(b.owner, testID, set, policy, number)
}

// Invariant: one group per 32 machines of a set. All of a set come at once, and
// the 33rd gets the second group; a place that is free again is taken again.
func TestASetOfManyMachinesGetsMoreGroups(t *testing.T) {
	t.Parallel()

	const size = machineclass.MaxSetGroupMembers + 1

	bubble(t, func(t *testing.T, b *bench) {
		b.start()

		id := func(i int) string { return fmt.Sprintf("talos-workers-%06d", i) }
		for i := range size {
			b.askIn("talos-workers", id(i), "project: demo\nmachine_set_group: allow\n")
		}

		b.askIn("other", "other-bcdfgh", "project: demo\nmachine_set_group: allow\n")
		b.ask("by-hand", class("project: demo\nmachine_set_group: fail\n"))

		for i := range size {
			b.untilStage(id(i), stageProvisioned)
		}

		b.untilStage("other-bcdfgh", stageProvisioned)
		b.untilStage("by-hand", stageProvisioned)

		first, second, others := b.groupName("talos-workers", "allow", 0), b.groupName("talos-workers", "allow", 1), b.groupName("other", "allow", 0)

		if got := b.memberCounts(); len(got) != 3 || got[first] != size-1 || got[second] != 1 || got[others] != 1 {
			t.Errorf("members are %v", got)
		}

		if n := b.sim.CallCount("anti_affinity_group_create"); n != 3 {
			t.Errorf("%d calls to make groups", n)
		}

		// Somebody of the first group goes, and the next machine takes the place.
		for i := range size {
			if b.stored(id(i)).TypedSpec().Value.GetPlan().GetSetGroup().GetNumber() == 0 {
				b.remove(id(i))
				b.untilReleased(id(i))

				break
			}
		}

		b.askIn("talos-workers", "talos-workers-bcdfgh", "project: demo\nmachine_set_group: allow\n")
		b.untilStage("talos-workers-bcdfgh", stageProvisioned)

		if got := b.memberCounts(); got[first] != size-1 || got[second] != 1 {
			t.Errorf("members are %v", got)
		}
	})
}

// With the policy fail a set that one group can not hold is refused with the
// limit, and goes on by itself when it is small enough.
func TestTooLargeASetIsRefusedWithTheLimit(t *testing.T) {
	t.Parallel()

	const want = "machine class: machine_set_group: 33 machines are over the limit of 32 that one anti-affinity group keeps apart, which fail needs"

	bubble(t, func(t *testing.T, b *bench) {
		group := func(i uint32) *specs.SetGroupPlan {
			return &specs.SetGroupPlan{Set: "talos-workers", Policy: "fail", Name: b.groupName("talos-workers", "fail", i), Number: i}
		}

		// The others are planned, and never get their image.
		b.images.answers(func(int, image.Want) (image.Status, error) {
			return image.Status{Reason: "uploading", RetryIn: time.Minute}, nil
		})

		for i := range machineclass.MaxSetGroupMembers {
			id := fmt.Sprintf("talos-workers-%06d", i)
			b.store(id, stepPlan, &specs.InstanceSpec{Plan: &specs.Plan{RequestId: id, ProjectId: b.project.Id, SetGroup: group(0)}})
		}

		b.start()
		b.askIn("talos-workers", theRequest, "project: demo\nmachine_set_group: fail\n")
		b.untilStage(theRequest, stageFailed)

		if got := b.status(theRequest).GetError(); got != want {
			t.Errorf("the request says %q", got)
		}

		if n := b.sim.CallCount("anti_affinity_group_create"); n != 0 {
			t.Errorf("%d groups are made", n)
		}

		b.ok(b.st.Destroy(t.Context(), b.stored("talos-workers-000007").Metadata(), state.WithDestroyOwner(testID+sdkController)))
		b.until("it to be planned", func() bool { return b.stored(theRequest).TypedSpec().Value.GetPlan() != nil })

		if got := b.stored(theRequest).TypedSpec().Value.GetPlan().GetSetGroup(); got.GetNumber() != 0 || got.GetName() != group(0).GetName() {
			t.Errorf("planned %v", got)
		}
	})
}

// A stranger's group of the name is never touched, and the request says so.
func TestAStrangersGroupIsLeftAlone(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		name := b.groupName("talos-workers", "allow", 0)

		_, err := b.rack.CreateAntiAffinityGroup(t.Context(), b.project.Id, oxide.AntiAffinityGroupCreate{
			Name: oxide.Name(name), Description: "somebody's", Policy: "allow", FailureDomain: oxide.FailureDomainSled,
		})
		b.ok(err)

		b.start()
		b.askIn("talos-workers", theRequest, "project: demo\nmachine_set_group: allow\n")
		b.untilStage(theRequest, stageFailed)

		want := `an anti-affinity group named "` + name + `" that is not ours is in project "demo": rename or delete it`
		if got := b.status(theRequest).GetError(); got != want {
			t.Errorf("the request says\n%q, want\n%q", got, want)
		}

		if got := b.memberCounts(); len(got) != 1 || got[name] != 0 || strings.Contains(b.logText(), "deleting") {
			t.Errorf("groups are %v", got)
		}

		b.remove(theRequest)
		b.untilReleased(theRequest)
	})
}
