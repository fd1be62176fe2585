package instance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

const testSet = "talos-workers"

// inGroup is a planned machine with a place in a group of its set.
func (b *bench) inGroup(requestID string, number uint32) *specs.InstanceSpec {
	spec := b.planned(requestID)
	spec.Plan.SetGroup = &specs.SetGroupPlan{
		Set: testSet, Policy: "fail", Number: number, Name: naming.SetGroup(testOwner, testProvider, testSet, "fail", number),
	}

	return spec
}

func (b *bench) groups() []oxide.AntiAffinityGroup {
	b.t.Helper()

	return must(b.rack.ListAntiAffinityGroups(b.t.Context(), b.project.Id))(b.t)
}

func (b *bench) members(groupID string) int {
	b.t.Helper()

	return len(must(b.rack.ListAntiAffinityGroupMembers(b.t.Context(), groupID))(b.t))
}

// Invariant: the machines of a set share one group, which whoever comes first
// makes, with our mark; its attempt is stored before the call.
func TestMachinesOfASetShareTheirGroup(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.inGroup("talos-workers-bcdfgh", 0)

	b.storing(b.create(t.Context(), spec))

	if spec.GetSetGroupCreate().GetCount() != 1 || b.sim.CallCount("anti_affinity_group_create") != 0 {
		t.Fatalf("no attempt was stored before the call: %v", spec)
	}

	b.storing(b.create(t.Context(), spec))

	if spec.GetSetGroupId() == "" || spec.GetSetGroupCreate() != nil || spec.GetCreate() != nil {
		t.Fatalf("the group's ID is not stored before the instance is made: %v", spec)
	}

	for _, s := range []*specs.InstanceSpec{spec, b.inGroup("talos-workers-bcdfgj", 0), b.inGroup("talos-workers-bcdfgk", 1)} {
		_, err := b.drive(s, b.create)
		b.ok(err)
	}

	groups := b.groups()
	if len(groups) != 2 || b.sim.CallCount("anti_affinity_group_create") != 2 {
		t.Fatalf("groups are %+v", groups)
	}

	for _, g := range groups {
		mark, ok := naming.Parse(g.Description)
		if !ok || mark.Kind != naming.KindGroup || mark.Key != naming.RequestKey(testSet) || mark.Owner != testOwner || g.Policy != "fail" {
			t.Errorf("the group is %+v", g)
		}

		want := map[string]int{b.inGroup("", 0).Plan.SetGroup.Name: 2, b.inGroup("", 1).Plan.SetGroup.Name: 1}[string(g.Name)]
		if n := b.members(g.Id); n != want {
			t.Errorf("group %s has %d members, want %d", g.Name, n, want)
		}
	}
}

// Two processes, or two workers, come for one set at the same time: there is one
// group, and nobody fails.
func TestTwoAtOnceMakeOneGroup(t *testing.T) {
	t.Parallel()

	for name, shared := range map[string]bool{"workers": true, "processes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := newBench(t)

			var (
				wg   sync.WaitGroup
				mu   sync.Mutex
				errs error
			)

			for i := range 8 {
				m := b.m
				if !shared {
					m = b.machines()
				}

				wg.Go(func() {
					spec := b.inGroup(fmt.Sprintf("talos-workers-%06d", i), 0)
					_, err := b.drive(spec, func(ctx context.Context, s *specs.InstanceSpec) error { return m.Create(ctx, s, "join config") })

					mu.Lock()
					defer mu.Unlock()

					errs = errors.Join(errs, err)
				})
			}

			wg.Wait()
			b.ok(errs)

			groups := b.groups()
			if len(groups) != 1 || b.members(groups[0].Id) != 8 {
				t.Fatalf("groups are %+v", groups)
			}

			if n := b.sim.CallCount("anti_affinity_group_create"); shared && n != 1 {
				t.Errorf("%d calls to make it", n)
			}
		})
	}
}

// A lost answer is found by name, and taken only with our mark and as planned.
func TestALostGroupIsAdoptedOnlyAsPlanned(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.fault(simrack.Fault{Operation: "anti_affinity_group_create", Action: simrack.ActionLoseAnswer, Count: 1})

	spec := b.inGroup("talos-workers-bcdfgh", 0)
	reasons, err := b.drive(spec, b.create)
	b.ok(err)

	if len(b.groups()) != 1 || b.sim.CallCount("anti_affinity_group_create") != 1 || b.members(spec.GetSetGroupId()) != 1 {
		t.Errorf("groups are %+v", b.groups())
	}

	if !strings.Contains(strings.Join(reasons, ";"), "creating the anti-affinity group of the machine set: ") {
		t.Errorf("waits were %q", reasons)
	}

	name := spec.Plan.SetGroup.Name
	other := naming.Mark{Owner: strings.Repeat("b", 26), Provider: testProvider, Kind: naming.KindGroup, Key: naming.RequestKey(testSet), Run: "0123abcd"}
	otherSet := other
	otherSet.Owner, otherSet.Key = testOwner, naming.RequestKey("another")
	ours := other
	ours.Owner = testOwner

	for _, c := range []struct{ description, policy, want string }{
		{"", "fail", `an anti-affinity group named "` + name + `" that is not ours is in project "demo": rename or delete it`},
		{other.String(), "fail", `an anti-affinity group named "` + name + `" that is not ours is in project "demo": rename or delete it`},
		{otherSet.String(), "fail", `an anti-affinity group named "` + name + `" that is not ours is in project "demo": rename or delete it`},
		{ours.String(), "allow", `the anti-affinity group "` + name + `" in project "demo" has the policy allow and not fail: delete it when it has no members`},
	} {
		b := newBench(t)
		must(b.rack.CreateAntiAffinityGroup(t.Context(), b.project.Id, oxide.AntiAffinityGroupCreate{
			Name: oxide.Name(name), Description: c.description, Policy: oxide.AffinityPolicy(c.policy), FailureDomain: oxide.FailureDomainSled,
		}))(t)

		_, err := b.drive(b.inGroup("talos-workers-bcdfgh", 0), b.create)
		if m, ok := errors.AsType[*Mend](err); !ok || m.Error() != c.want {
			t.Errorf("%q: %v", c.description, err)
		}

		if n := b.sim.CallCount("anti_affinity_group_create"); n != 1 || len(b.groups()) != 1 {
			t.Errorf("%q: %d creates", c.description, n)
		}

		b.wantLeft(0, 0)
	}
}

// What the rack refuses for now is tried again after ever longer pauses, and a
// group that is deleted before the instance is made is made again.
func TestAGroupIsTriedAndMadeAgain(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	b.fault(simrack.Fault{Operation: "anti_affinity_group_create", Action: simrack.ActionError, Status: http.StatusServiceUnavailable, Code: "ServiceNotAvailable", Count: 2})

	spec := b.inGroup("talos-workers-bcdfgh", 0)
	began := b.m.now()

	for spec.GetSetGroupId() == "" {
		w, ok := AsWait(b.create(t.Context(), spec))
		if !ok {
			t.Fatal("no wait")
		}

		b.pass(w.After)
	}

	if waited := b.m.now().Sub(began); waited < (pause(1)+pause(2))/4 {
		t.Errorf("it was tried three times in %s", waited.Round(time.Second))
	}

	b.ok(b.rack.DeleteAntiAffinityGroup(t.Context(), spec.GetSetGroupId()))

	_, err := b.drive(spec, b.create)
	b.ok(err)

	if groups := b.groups(); len(groups) != 1 || groups[0].Id != spec.GetSetGroupId() || b.members(groups[0].Id) != 1 {
		t.Errorf("groups are %+v", groups)
	}
}

// A teardown does not look at the group, whatever has become of it.
func TestATeardownLeavesTheGroup(t *testing.T) {
	t.Parallel()

	b := newBench(t)
	spec := b.inGroup("talos-workers-bcdfgh", 0)

	_, err := b.drive(spec, b.create)
	b.ok(err)

	looks := b.sim.CallCount("anti_affinity_group_view")

	_, err = b.drive(spec, b.m.Remove)
	b.ok(err)

	b.wantLeft(0, 0)

	if n := b.sim.CallCount("anti_affinity_group_view"); n != looks || len(b.groups()) != 1 || b.members(spec.GetSetGroupId()) != 0 {
		t.Errorf("groups are %+v after %d looks", b.groups(), n-looks)
	}
}
