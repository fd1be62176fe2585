package main

import (
	"slices"
	"strings"

	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// setGroups: two machines of a set come at once and share one group, which goes
// when nobody needs it any more.
func setGroups() scenario {
	spread := func(s *specs.MachineRequestSetSpec) { s.ProviderData = crashClass("machine_set_group: fail\n") }

	return scenario{
		name: "set groups",
		env:  map[string]string{"JANITOR_GRACE": "1s"},
		before: func(r *crashRun) {
			r.addGroup("somebodys", strings.Repeat("b", 26))
			r.begin()
			r.register()
		},
		run: func(r *crashRun) {
			r.set("workers", crashProvider, 2, spread)
			r.rest([]int{1}, plain("workers", 2))
			r.wantGroups(map[string]int{naming.SetGroup(r.owner, crashProvider, "workers", "fail", 0): 2})

			r.set("workers", crashProvider, 0, spread)
			r.until("the group to be removed", func() bool { return len(r.requests()) == 0 && len(r.groups()) == 1 })
			r.wantGroups(map[string]int{})
		},
	}
}

// addGroup makes an empty group for the set that is marked for an owner.
func (r *crashRun) addGroup(name, owner string) {
	mark := naming.Mark{Owner: owner, Provider: crashProvider, Kind: naming.KindGroup, Key: naming.RequestKey("workers"), Run: "0123abcd"}

	must(r.Operator.Rack().AntiAffinityGroupCreate(r.t.Context(), oxide.AntiAffinityGroupCreateParams{
		Project: site.Project,
		Body: &oxide.AntiAffinityGroupCreate{
			Name: oxide.Name(name), Description: mark.Describe("Another owner's."), Policy: oxide.AffinityPolicyFail, FailureDomain: oxide.FailureDomainSled,
		},
	}))(r.t)
}

func (r *crashRun) groups() []oxide.AntiAffinityGroup {
	return must(r.Operator.Rack().AntiAffinityGroupListAllPages(r.t.Context(), oxide.AntiAffinityGroupListParams{Project: site.Project}))(r.t)
}

// wantGroups demands these groups with so many members, each with its set's mark,
// and the stranger's.
func (r *crashRun) wantGroups(want map[string]int) {
	r.t.Helper()

	groups := r.groups()

	if !slices.ContainsFunc(groups, func(g oxide.AntiAffinityGroup) bool { return g.Name == "somebodys" }) {
		r.t.Error("a stranger's group is gone")
	}

	if len(groups) != len(want)+1 {
		r.t.Errorf("there are the groups %+v, want %v", groups, want)
	}

	for _, g := range groups {
		if g.Name == "somebodys" {
			continue
		}

		members := must(r.Operator.Rack().AntiAffinityGroupMemberListAllPages(r.t.Context(),
			oxide.AntiAffinityGroupMemberListParams{AntiAffinityGroup: oxide.NameOrId(g.Id)}))(r.t)

		if n, ok := want[string(g.Name)]; !ok || len(members) != n {
			r.t.Errorf("group %s has %d members, want %v", g.Name, len(members), want)
		}

		mark, ok := naming.Parse(g.Description)
		if !ok || mark.Owner != r.owner || mark.Kind != naming.KindGroup || mark.Key != naming.RequestKey("workers") {
			r.t.Errorf("group %s is described as %q", g.Name, g.Description)
		}
	}
}
