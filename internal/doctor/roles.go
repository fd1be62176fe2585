package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/config"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// ranks are the roles from least to most, by the names that silos and projects have
// in common.
func ranks() []string { return []string{"viewer", "limited_collaborator", "collaborator", "admin"} }

// rank is a role's place among them, -1 for none.
func rank(role string) int { return slices.Index(ranks(), role) }

// makes says in which projects the token may make machines, by the roles that its
// user and the user's groups were given: nothing is tried.
func (e *exam) makes(ctx context.Context, check string, projects []oxide.Project) {
	const give = "give its user the role silo collaborator, or silo viewer with limited collaborator on the project"

	if len(projects) == 0 {
		e.fail(check, "the token sees no project", "make a project with a VPC and a subnet, or give the token's user a role in it")

		return
	}

	reads := fmt.Sprintf("the token reads what it must, and %d projects", len(projects))

	silo, most, err := e.roles(ctx, projects)

	switch {
	case err != nil:
		e.note(check, reads+"; what it may make can not be told: "+rack.Reason(err), "")
	case e.me.FleetViewer != nil && *e.me.FleetViewer && most < rank("limited_collaborator"):
		e.note(check, reads+"; what it may make follows from roles on the fleet, which can not be told", "")
	case most < rank("limited_collaborator"):
		e.fail(check, "the token may read, but make nothing in any project", give)
	case e.Config.Config.Images.Scope == config.ScopeSilo && silo < rank("collaborator"):
		e.fail(check, "the token may not keep images in the silo, as --image-scope asks", "give its user the role silo collaborator, or set IMAGE_SCOPE to auto")
	default:
		e.ok(check, "%s; its user is %s", reads, ranks()[most])
	}
}

// roles are the user's rank on the silo, -1 for none, and the highest one on any of
// the projects, those included that come from the silo.
func (e *exam) roles(ctx context.Context, projects []oxide.Project) (silo, most int, err error) {
	silo = -1
	mine := map[string]bool{e.me.Id: true}

	groups, err := e.Rack.ListMyGroups(ctx)
	if err != nil {
		return 0, 0, err
	}

	for _, g := range groups {
		mine[g.Id] = true
	}

	policy, err := e.Rack.ViewSiloPolicy(ctx)
	if err != nil {
		return 0, 0, err
	}

	for _, a := range policy.RoleAssignments {
		if mine[a.IdentityId] {
			silo = max(silo, rank(string(a.RoleName)))
		}
	}

	if most = silo; most >= rank("limited_collaborator") {
		return silo, most, nil
	}

	for _, p := range projects {
		policy, err := e.Rack.ViewProjectPolicy(ctx, p.Id)
		if err != nil {
			return 0, 0, err
		}

		for _, a := range policy.RoleAssignments {
			if mine[a.IdentityId] {
				most = max(most, rank(string(a.RoleName)))
			}
		}
	}

	return silo, most, nil
}
