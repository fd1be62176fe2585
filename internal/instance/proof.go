package instance

import (
	"context"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// proveGone proves that the project has no instance of the given ID, and
// answers the project's complete list of instances. A role that was lost looks
// like absence, so a 404 for one object proves nothing; the list proves the
// right to see and the absence together. gone is empty to only list.
func (m *Machines) proveGone(ctx context.Context, plan *specs.Plan, gone string) ([]oxide.Instance, error) {
	all, err := m.cfg.Rack.ListInstances(ctx, plan.GetProjectId())
	if err != nil {
		if rack.ClassOf(err) == rack.ClassGone {
			return nil, m.proveProjectGone(ctx, plan, err)
		}

		return nil, err
	}

	for i := range all {
		if gone != "" && all[i].Id == gone {
			return nil, waitFor(5*time.Second, "the rack shows instance %s in its list but not by itself", gone)
		}
	}

	return all, nil
}

// stillHere makes sure that it is the plan's silo that is asked: in any other the
// project is absent too.
func (m *Machines) stillHere(ctx context.Context, plan *specs.Plan) error {
	if m.cfg.Silo == nil || plan.GetSiloId() == "" {
		return nil
	}

	silo, err := m.cfg.Silo(ctx)
	if err != nil {
		return err
	}

	if silo != plan.GetSiloId() {
		return mend(nil, "the rack's address leads to silo %s, and the machine was planned in silo %s", silo, plan.GetSiloId())
	}

	return nil
}

// proveProjectGone returns nil only if the project does not exist. Whoever may
// list the silo's projects may read each of them, so only such a token can tell
// a deleted project from one it has lost its role in.
func (m *Machines) proveProjectGone(ctx context.Context, plan *specs.Plan, cause error) error {
	if err := m.stillHere(ctx, plan); err != nil {
		return err
	}

	projects, err := m.cfg.Rack.ListProjects(ctx)

	switch rack.ClassOf(err) {
	case rack.ClassOK:
	case rack.ClassForbidden, rack.ClassGone:
		return mend(cause, "project %s can not be read: deleted, or the daemon's token (OXIDE_TOKEN) has lost its role; "+
			"give the token a role in it or silo viewer", plan.GetProjectName())
	case rack.ClassExists, rack.ClassInvalid, rack.ClassCredentials, rack.ClassCapacity, rack.ClassConflict,
		rack.ClassBusy, rack.ClassInternal, rack.ClassVersion, rack.ClassLost, rack.ClassFenced:
		return err
	}

	for i := range projects {
		if projects[i].Id == plan.GetProjectId() {
			return &Wait{Reason: "the rack lists project " + plan.GetProjectName() + " but does not show it", After: 30 * time.Second, Cause: cause}
		}
	}

	return nil
}
