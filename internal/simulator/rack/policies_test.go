package rack

import (
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// Invariant: a policy tells the roles that were given, and none that is inherited.
func TestPoliciesTellTheRolesThatWereGiven(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Tokens = []Token{
			{Value: DefaultToken},
			{Value: "reader", User: "reader", SiloRole: RoleViewer, ProjectRoles: map[string]Role{"demo": RoleLimitedCollaborator}},
			{Value: "nothing", User: "nothing", SiloRole: SiloNone},
		}
	})
	ctx := t.Context()
	users := map[string]string{}

	for _, u := range must(r.client.UserListAllPages(ctx, oxide.UserListParams{}))(t) {
		users[u.Id] = u.DisplayName
	}

	silo := map[string]oxide.SiloRole{}
	for _, a := range must(r.client.PolicyView(ctx))(t).RoleAssignments {
		silo[users[a.IdentityId]] = a.RoleName
	}

	if len(silo) != 2 || silo["provider"] != oxide.SiloRoleCollaborator || silo["reader"] != oxide.SiloRoleViewer {
		t.Errorf("the silo's policy is %v", silo)
	}

	project := must(r.client.ProjectPolicyView(ctx, oxide.ProjectPolicyViewParams{Project: "demo"}))(t).RoleAssignments
	if len(project) != 1 || users[project[0].IdentityId] != "reader" || project[0].RoleName != oxide.ProjectRoleLimitedCollaborator {
		t.Errorf("the project's policy is %v", project)
	}
}
