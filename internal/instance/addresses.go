package instance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// FloatingIPs is what this package asks of the rack about floating addresses.
type FloatingIPs interface {
	ListFloatingIPs(ctx context.Context, projectID string) ([]oxide.FloatingIp, error)
	ViewFloatingIPByName(ctx context.Context, projectID, name string) (*oxide.FloatingIp, error)
	CreateFloatingIP(ctx context.Context, projectID string, f oxide.FloatingIpCreate) (*oxide.FloatingIp, error)
	DeleteFloatingIP(ctx context.Context, id string) error
}

// makesAddress says whether a floating address is made for this entry, and not
// taken from those that the class lists.
func makesAddress(e *specs.ExternalIPPlan) bool {
	return e.GetType() == floating && e.GetFloatingIpId() == ""
}

func makesAddresses(plan *specs.Plan) bool {
	for _, e := range plan.GetExternalIps() {
		if makesAddress(e) {
			return true
		}
	}

	return false
}

// addresses has the floating addresses of the plan made, one call of this
// function at a time: the instance is created with their IDs. It returns nil when
// all of them are known.
func (m *Machines) addresses(ctx context.Context, spec *specs.InstanceSpec) error {
	for _, e := range spec.GetPlan().GetExternalIps() {
		if !makesAddress(e) {
			continue
		}

		ref := refOf(spec, e.GetName())
		if ref == nil {
			ref = &specs.FloatingIPRef{Name: e.GetName()}
			spec.FloatingIps = append(spec.FloatingIps, ref)
		}

		if ref.GetId() == "" {
			return m.address(ctx, spec, e, ref)
		}
	}

	return nil
}

// address takes the next step to one floating address, as Create does to the
// instance.
func (m *Machines) address(ctx context.Context, spec *specs.InstanceSpec, e *specs.ExternalIPPlan, ref *specs.FloatingIPRef) error {
	attempt := ref.GetCreate()

	switch {
	case attempt == nil:
		return m.stampAddress(spec, ref)
	case attempt.GetFailed():
		if left := m.failedFor(attempt); left > 0 {
			if attempt.GetMend() {
				return mend(nil, "%s", making(e.GetName())+attempt.GetLastError())
			}

			return waitFor(left, "%s", making(e.GetName())+attempt.GetLastError())
		}

		return m.stampAddress(spec, ref)
	}

	found, err := m.cfg.Rack.ViewFloatingIPByName(ctx, spec.GetPlan().GetProjectId(), e.GetName())

	switch {
	case err == nil:
		return m.adoptAddress(spec, ref, found)
	case rack.ClassOf(err) != rack.ClassGone:
		return err
	case !m.fresh(addressKey(spec, ref)):
		return m.stampAddress(spec, ref)
	}

	return m.createAddress(ctx, spec, e, ref)
}

// making begins each line about a floating address that is made.
func making(name string) string { return fmt.Sprintf("making the floating address %q: ", name) }

// addressKey is what an attempt at a floating address is remembered under.
func addressKey(spec *specs.InstanceSpec, ref *specs.FloatingIPRef) string {
	return spec.GetPlan().GetRequestId() + "/" + ref.GetName()
}

// stampAddress stores that a floating address is about to be made.
func (m *Machines) stampAddress(spec *specs.InstanceSpec, ref *specs.FloatingIPRef) error {
	last := ref.GetCreate()
	unsure := m.unsure(spec)

	if last != nil && !last.GetFailed() {
		spec.UnsureCreate = timestamppb.New(unsure)
	}

	m.stampAs(addressKey(spec, ref), spec.GetPlan().GetRequestId(), unsure)

	ref.Create = &specs.Attempt{At: timestamppb.New(m.now()), Count: last.GetCount() + 1, LastError: last.GetLastError()}

	if last.GetLastError() != "" {
		return waitFor(0, "making the floating address %q, try %d: %s", ref.GetName(), ref.GetCreate().GetCount(), last.GetLastError())
	}

	return storeNow()
}

// adoptAddress takes a floating address of the planned name if it is ours.
func (m *Machines) adoptAddress(spec *specs.InstanceSpec, ref *specs.FloatingIPRef, found *oxide.FloatingIp) error {
	plan := spec.GetPlan()

	if !m.ours(found.Description, plan.GetRequestId(), naming.KindIP) {
		return mend(nil, "a floating address named %q that is not ours is in project %q: rename or delete it", ref.GetName(), plan.GetProjectName())
	}

	ref.Id, ref.Create = found.Id, nil

	return storeNow()
}

func (m *Machines) createAddress(ctx context.Context, spec *specs.InstanceSpec, e *specs.ExternalIPPlan, ref *specs.FloatingIPRef) error {
	plan, attempt := spec.GetPlan(), ref.GetCreate()

	made, err := m.cfg.Rack.CreateFloatingIP(ctx, plan.GetProjectId(), oxide.FloatingIpCreate{
		Name:             oxide.Name(e.GetName()),
		Description:      m.describe(plan, naming.KindIP, "Floating address of machine "+plan.GetRequestId()+"."),
		AddressAllocator: oxide.AddressAllocator{Value: oxide.AddressAllocatorAuto{PoolSelector: poolSelector(e)}},
	})
	if err == nil {
		ref.Id, ref.Create = made.Id, nil

		return storeNow()
	}

	attempt.LastError = rack.Reason(err)
	class := rack.ClassOf(err)

	switch {
	case class.Unsure():
		m.gaveUpNow(spec)

		return &Wait{
			Reason: making(e.GetName()) + "no sure answer, looking: " + attempt.GetLastError(),
			After:  pause(attempt.GetCount()) / 4, Cause: err,
		}
	case class == rack.ClassExists:
		// Looked up in the next run.
		return &Wait{Reason: making(e.GetName()) + attempt.GetLastError(), After: time.Second, Cause: err}
	case class.Passing():
		attempt.Failed = true

		return &Wait{Reason: making(e.GetName()) + attempt.GetLastError(), After: pause(attempt.GetCount()), Cause: err}
	default:
		attempt.Failed, attempt.Mend = true, true

		return &Wait{Reason: making(e.GetName()) + attempt.GetLastError(), After: time.Second, Cause: err}
	}
}

// recheckAddresses makes sure of the floating addresses that were made, before the
// instance is tried to be created once more: somebody may have deleted one since,
// or have put it elsewhere.
func (m *Machines) recheckAddresses(ctx context.Context, spec *specs.InstanceSpec) error {
	if len(spec.GetFloatingIps()) == 0 {
		return nil
	}

	all, err := m.cfg.Rack.ListFloatingIPs(ctx, spec.GetPlan().GetProjectId())
	if err != nil {
		return err
	}

	there := map[string]*oxide.FloatingIp{}
	for i := range all {
		there[all[i].Id] = &all[i]
	}

	var gone bool

	for _, ref := range spec.GetFloatingIps() {
		switch found := there[ref.GetId()]; {
		case ref.GetId() == "":
		case found == nil:
			// The list is complete, so it is proven gone: another one is made.
			ref.Id, ref.Create = "", nil
			gone = true
		case found.InstanceId != "":
			// An instance of ours that a lost call has made is looked for by its name.
			own, err := m.holds(ctx, spec.GetPlan(), found.InstanceId)
			if err != nil {
				return err
			}

			if !own {
				return waitFor(mendInterval/2, "the floating address %q, made for this machine, is attached to instance %s: detach it",
					found.Name, found.InstanceId)
			}
		}
	}

	if gone {
		return storeNow()
	}

	return nil
}

// holds says whether an ID is that of the instance with the planned name and our
// mark.
func (m *Machines) holds(ctx context.Context, plan *specs.Plan, instanceID string) (bool, error) {
	i, err := m.cfg.Rack.ViewInstanceByName(ctx, plan.GetProjectId(), plan.GetInstanceName())

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		return i.Id == instanceID && m.ours(i.Description, plan.GetRequestId(), naming.KindInstance), nil
	case rack.ClassGone:
		return false, nil
	default:
		return false, err
	}
}

// addressRefused says whether the rack refused an instance for an address that
// the plan names: another one may do, or the same one later.
func addressRefused(plan *specs.Plan, err error) bool {
	class := rack.ClassOf(err)
	if class != rack.ClassInvalid && class != rack.ClassGone || !namesAddresses(plan) {
		return false
	}

	text := strings.ToLower(rack.Reason(err))

	return strings.Contains(text, "floating") || strings.Contains(text, "ip address") && strings.Contains(text, "not available")
}

// namesAddresses says whether the instance is created with addresses that others
// may hold.
func namesAddresses(plan *specs.Plan) bool {
	for _, n := range plan.GetNics() {
		if n.GetIpv4() != "" || n.GetIpv6() != "" {
			return true
		}
	}

	for _, e := range plan.GetExternalIps() {
		if e.GetType() == floating {
			return true
		}
	}

	return false
}

// removeAddresses deletes the floating addresses that bear the request's mark.
// Those that the class lists have none: they were detached with the instance, or
// are somebody else's by now.
func (m *Machines) removeAddresses(ctx context.Context, t target) error {
	if !t.addresses {
		return nil
	}

	all, err := m.cfg.Rack.ListFloatingIPs(ctx, t.plan.GetProjectId())
	if err != nil {
		if rack.ClassOf(err) == rack.ClassGone {
			return m.proveProjectGone(ctx, t.plan, err)
		}

		return err
	}

	var (
		began = m.now()
		left  error
	)

	for i := range all {
		if !m.marked(all[i].Description, t.key, naming.KindIP) {
			continue
		}

		if m.now().Sub(began) > deleteWithin {
			return sooner(left, waitFor(time.Second, "floating addresses are still to be deleted"))
		}

		left = sooner(left, m.removeAddress(ctx, &all[i]))
	}

	return left
}

// removeAddress deletes one floating address of ours. It returns nil when that is
// done.
func (m *Machines) removeAddress(ctx context.Context, f *oxide.FloatingIp) error {
	if f.InstanceId != "" {
		return waitFor(5*time.Second, "floating address %q is attached to instance %s: detach it if that is not the machine being removed", f.Name, f.InstanceId)
	}

	if left, why := m.due(f.Id); left > 0 {
		return waitFor(left, "deleting floating address %q: %s", f.Name, why)
	}

	if err := m.asked(ctx, Act{Verb: "delete", Kind: naming.KindIP, ID: f.Id, Name: string(f.Name)}); err != nil {
		return err
	}

	err := m.cfg.Rack.DeleteFloatingIP(ctx, f.Id)
	m.tried(f.Id, err)

	switch rack.ClassOf(err) {
	case rack.ClassOK:
		return nil
	case rack.ClassCredentials, rack.ClassForbidden, rack.ClassVersion:
		return err
	default:
		// Also after a 404: whether it is gone is for the next list to say.
		return &Wait{Reason: "deleting floating address " + string(f.Name) + ": " + rack.Reason(err), After: 2 * time.Second, Cause: err}
	}
}
