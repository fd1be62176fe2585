package instance

import (
	"context"
	"strings"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// makingGroup begins each line about a group that is to be made.
const makingGroup = "creating the anti-affinity group of the machine set: "

// ensureSetGroup brings the spec to a known group of its machine set, if the plan
// has one. Whoever of the set comes first makes it; the others find it by its
// name. It is nobody's to remove here: others may be about to join it, so the
// janitor does that when nobody needs it any more.
//
//	look by name ─┬─ ours, as planned ─────────────> ID stored
//	     ^        ├─ a stranger's ─────────────────> Mend
//	     │        └─ absent ─ attempt stored ─ create ┬─ answered ─> ID stored
//	     └──── somebody was faster, or no answer ─────┘
func (m *Machines) ensureSetGroup(ctx context.Context, spec *specs.InstanceSpec) error {
	plan, group := spec.GetPlan(), spec.GetPlan().GetSetGroup()
	if group == nil || spec.GetSetGroupId() != "" {
		return nil
	}

	attempt := spec.GetSetGroupCreate()
	over := attempt.GetLastError() != ""

	if left := m.left(attempt, groupPause(attempt)); over && left > 0 {
		return waitFor(left, makingGroup+"%s", attempt.GetLastError())
	}

	found, err := m.cfg.Rack.ViewAntiAffinityGroup(ctx, plan.GetProjectId(), group.GetName())

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		return m.adoptGroup(spec, found)
	case rack.ClassGone:
	default:
		return err
	}

	if !m.claimGroup(plan) {
		return waitFor(500*time.Millisecond, "another machine of the set is creating their anti-affinity group")
	}

	if attempt == nil || over || m.now().Sub(attempt.GetAt().AsTime()) > freshAttempt {
		spec.SetGroupCreate = &specs.Attempt{At: timestamppb.New(m.now()), Count: attempt.GetCount() + 1}

		return storeNow()
	}

	defer m.unclaimGroup(plan)

	return m.createGroup(ctx, spec)
}

// adoptGroup takes a group of the planned name if it is ours and as planned:
// somebody else of the set has made it, or the answer to our create was lost.
func (m *Machines) adoptGroup(spec *specs.InstanceSpec, found *oxide.AntiAffinityGroup) error {
	plan, group := spec.GetPlan(), spec.GetPlan().GetSetGroup()
	m.unclaimGroup(plan)

	if !m.ours(found.Description, group.GetSet(), naming.KindGroup) {
		return mend(nil, "an anti-affinity group named %q that is not ours is in project %q: rename or delete it", group.GetName(), plan.GetProjectName())
	}

	if string(found.Policy) != group.GetPolicy() {
		return mend(nil, "the anti-affinity group %q in project %q has the policy %s and not %s: delete it when it has no members",
			group.GetName(), plan.GetProjectName(), found.Policy, group.GetPolicy())
	}

	spec.SetGroupId, spec.SetGroupCreate = found.Id, nil

	return storeNow()
}

func (m *Machines) createGroup(ctx context.Context, spec *specs.InstanceSpec) error {
	plan, group, attempt := spec.GetPlan(), spec.GetPlan().GetSetGroup(), spec.GetSetGroupCreate()

	made, err := m.cfg.Rack.CreateAntiAffinityGroup(ctx, plan.GetProjectId(), oxide.AntiAffinityGroupCreate{
		Name:          oxide.Name(group.GetName()),
		Description:   m.mark(group.GetSet(), naming.KindGroup).Describe("Keeps machines of the set " + group.GetSet() + " of Omni apart."),
		Policy:        oxide.AffinityPolicy(group.GetPolicy()),
		FailureDomain: oxide.FailureDomainSled,
	})

	switch class := rack.ClassOf(err); {
	case class == rack.ClassOK:
		spec.SetGroupId, spec.SetGroupCreate = made.Id, nil

		return storeNow()
	case class == rack.ClassExists:
		return waitFor(500*time.Millisecond, "another machine of the set has created their anti-affinity group")
	case class.Unsure() || class.Passing():
		// Whatever has become of the call: a second one can make no second group, as
		// the name is taken then.
		attempt.LastError = rack.Reason(err)

		return &Wait{Reason: makingGroup + attempt.GetLastError(), After: groupPause(attempt), Cause: err}
	default:
		return mend(err, makingGroup+"%s", rack.Reason(err))
	}
}

// groupPause is how long after an attempt that came to nothing the next one is
// made.
func groupPause(a *specs.Attempt) time.Duration { return pause(a.GetCount()) / 4 }

// groupVanished says that a create failed because the group of the set was
// deleted after it had been found.
func groupVanished(spec *specs.InstanceSpec, err error) bool {
	id := spec.GetSetGroupId()

	return id != "" && rack.ClassOf(err) == rack.ClassGone && strings.Contains(rack.Reason(err), id)
}

// claim is who makes a group in this process, and until when that is believed.
type claim struct {
	requestID string
	until     time.Time
}

// claimGroup lets one request at a time make a group. All of a set come at once,
// and all but one create call would fail.
func (m *Machines) claimGroup(plan *specs.Plan) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	key := plan.GetProjectId() + "/" + plan.GetSetGroup().GetName()

	if c, ok := m.claims[key]; ok && c.requestID != plan.GetRequestId() && m.now().Before(c.until) {
		return false
	}

	m.claims[key] = claim{plan.GetRequestId(), m.now().Add(freshAttempt)}

	return true
}

func (m *Machines) unclaimGroup(plan *specs.Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()

	key := plan.GetProjectId() + "/" + plan.GetSetGroup().GetName()
	if m.claims[key].requestID == plan.GetRequestId() {
		delete(m.claims, key)
	}
}
