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

const (
	// freshAttempt is how old an attempt may be when its call is made: teardown
	// counts from then.
	freshAttempt = 30 * time.Second
	// mendInterval is how often a create that was refused is tried again.
	mendInterval = 55 * time.Second
)

// Create brings the spec to a known instance with known disks. userData is
// handed to the guest as it is.
//
// Besides Wait and Mend it returns ErrImageGone when the rack says that the image
// of the plan is not there; the attempt then waits its time as any other.
func (m *Machines) Create(ctx context.Context, spec *specs.InstanceSpec, userData string) error {
	if spec.GetInstanceId() != "" {
		return m.recordDisks(ctx, spec)
	}

	if len(userData) > maxUserData {
		if roots := len(spec.GetPlan().GetTrustedRoots()); roots > 0 {
			return mend(nil, "trusted_cas: %d bytes with the join config of %d are over Oxide's limit of %d for user-data",
				roots, len(userData)-roots, maxUserData)
		}

		return mend(nil, "the join config of %d bytes is over Oxide's limit of %d for user-data", len(userData), maxUserData)
	}

	if err := m.ensureSetGroup(ctx, spec); err != nil {
		return err
	}

	attempt := spec.GetCreate()
	if attempt == nil || attempt.GetFailed() {
		return m.beginAttempt(ctx, spec)
	}

	// Where nothing can have been made there is nothing to adopt. A name that is
	// taken all the same is refused by the rack, and looked at then.
	if !m.isUntried(spec.GetPlan().GetRequestId()) {
		adopted, err := m.adopt(ctx, spec)
		if err != nil || adopted {
			return err
		}
	}

	return m.create(ctx, spec, userData)
}

// beginAttempt begins an attempt, the first one or one after another that is known
// to have left nothing, when its time has come: whatever wakes the request earlier
// costs no call.
func (m *Machines) beginAttempt(ctx context.Context, spec *specs.InstanceSpec) error {
	if attempt := spec.GetCreate(); attempt != nil {
		switch left := m.failedFor(attempt); {
		case left > 0 && attempt.GetMend():
			return mend(nil, creating+"%s", attempt.GetLastError())
		case left > 0:
			return waitFor(left, creating+"%s", attempt.GetLastError())
		}

		if err := m.recheckAddresses(ctx, spec); err != nil {
			return err
		}
	}

	if err := m.addresses(ctx, spec); err != nil {
		return err
	}

	return m.stampAttempt(ctx, spec)
}

// failedFor is how long an attempt that has failed is still to be left alone.
func (m *Machines) failedFor(attempt *specs.Attempt) time.Duration {
	if attempt.GetMend() {
		return m.left(attempt, mendInterval)
	}

	return m.left(attempt, pause(attempt.GetCount()))
}

// CreateDue says whether the next call of Create begins an attempt: nothing is
// under way, and what the last one failed with has had its time.
func (m *Machines) CreateDue(spec *specs.InstanceSpec) bool {
	attempt := spec.GetCreate()

	return spec.GetInstanceId() == "" && (attempt == nil || attempt.GetFailed() && m.failedFor(attempt) <= 0)
}

// stampAttempt stores that a create is about to be made, once a place for it is
// near: the stored time must be young when the call goes out.
func (m *Machines) stampAttempt(ctx context.Context, spec *specs.InstanceSpec) error {
	if err := mayTry(m.refusedCreates, spec.GetPlan(), creating); err != nil {
		return err
	}

	if err := m.askPlace(ctx, spec); err != nil {
		return err
	}

	last := spec.GetCreate()
	unsure := m.unsure(spec)

	if last != nil && !last.GetFailed() {
		spec.UnsureCreate = timestamppb.New(unsure)
	}

	m.stamp(spec.GetPlan().GetRequestId(), unsure)
	m.setUntried(spec.GetPlan().GetRequestId(), unsure.IsZero() && (last == nil || last.GetFailed()))

	spec.Create = &specs.Attempt{
		At: timestamppb.New(m.now()), Count: last.GetCount() + 1, LastError: last.GetLastError(),
	}

	// The text stands while the call is made, which may be long.
	if last.GetLastError() != "" {
		return &Wait{Reason: fmt.Sprintf("creating the instance, try %d: %s", spec.GetCreate().GetCount(), last.GetLastError()), First: true}
	}

	return &Wait{Reason: "creating the instance", First: true}
}

// unsure is the latest time at which a create call without a known outcome may
// have left us; zero without any.
func (m *Machines) unsure(spec *specs.InstanceSpec) time.Time {
	m.mu.Lock()
	latest := m.gaveUp[spec.GetPlan().GetRequestId()]
	m.mu.Unlock()

	if u := spec.GetUnsureCreate(); u != nil {
		latest = later(latest, m.bygone(u.AsTime()))
	}

	if spec.GetInstanceId() == "" {
		latest = later(latest, m.openUntil(spec.GetPlan().GetRequestId(), spec.GetCreate()))
	}

	for _, r := range spec.GetFloatingIps() {
		if r.GetId() == "" {
			latest = later(latest, m.openUntil(addressKey(spec, r), r.GetCreate()))
		}
	}

	return latest
}

// openUntil is when the call of an open attempt may have left us at the latest;
// zero for one with a known outcome. Of an open one nobody knows whether its call
// went out: it may have, until the attempt was too old for it, and may have been
// waited for until the process ended that made it.
func (m *Machines) openUntil(key string, a *specs.Attempt) time.Time {
	if a == nil || a.GetFailed() {
		return time.Time{}
	}

	m.mu.Lock()
	stamped, ours := m.stamped[key]
	m.mu.Unlock()

	if ours {
		return stamped.Add(freshAttempt)
	}

	return m.bygone(a.GetAt().AsTime().Add(freshAttempt + sagaTime))
}

// gaveUpNow notes that a call was given up without an answer. The rack may have
// taken it up only now.
func (m *Machines) gaveUpNow(spec *specs.InstanceSpec) {
	spec.UnsureCreate = timestamppb.New(m.now())

	m.mu.Lock()
	m.gaveUp[spec.GetPlan().GetRequestId()] = m.now()
	m.mu.Unlock()
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}

	return a
}

// Arrived notes when Omni made a request: the runtime hands many that come together
// out in any order.
func (m *Machines) Arrived(requestID string, at time.Time) { m.creates.Came(requestID, at) }

// askPlace asks for a place to create: the first time in the order in which the
// requests came, or at least were planned, whatever each has waited for since, and
// behind all others after a try that has failed.
func (m *Machines) askPlace(ctx context.Context, spec *specs.InstanceSpec) error {
	var came time.Time
	if at := spec.GetPlan().GetPlannedAt(); at != nil && spec.GetCreate().GetCount() <= 1 {
		came = at.AsTime()
	}

	ok, again, position := m.creates.Await(ctx, spec.GetPlan().GetRequestId(), came)
	if ok {
		return nil
	}

	return waitFor(again, "waiting for a turn to create the instance, number %d in line", position)
}

// adopt looks for the instance by its planned name and takes it if it is ours.
func (m *Machines) adopt(ctx context.Context, spec *specs.InstanceSpec) (bool, error) {
	plan := spec.GetPlan()

	found, err := m.cfg.Rack.ViewInstanceByName(ctx, plan.GetProjectId(), plan.GetInstanceName())
	if err != nil {
		if rack.ClassOf(err) == rack.ClassGone {
			return false, nil
		}

		return false, err
	}

	if !m.ours(found.Description, plan.GetRequestId(), naming.KindInstance) {
		m.creates.Leave(plan.GetRequestId())

		return false, mend(nil, "an instance named %q that is not ours is in project %q: rename or delete it",
			plan.GetInstanceName(), plan.GetProjectName())
	}

	if !planned(plan, found) {
		m.creates.Leave(plan.GetRequestId())

		return false, mend(nil, "instance %q bears our mark but not its plan's size: delete it if nothing runs on it", plan.GetInstanceName())
	}

	// The lost call's outcome is known now, and no other can be under way: the
	// name is taken.
	m.creates.Leave(plan.GetRequestId())
	spec.InstanceId, spec.Create = found.Id, nil

	return true, storeNow()
}

// planned says whether an instance is what the plan asks for.
func planned(plan *specs.Plan, i *oxide.Instance) bool {
	return uint32(i.Ncpus) == plan.GetCpus() && uint64(i.Memory) == plan.GetMemoryBytes() && i.Hostname == plan.GetInstanceName()
}

func (m *Machines) create(ctx context.Context, spec *specs.InstanceSpec, userData string) error {
	if !m.fresh(spec.GetPlan().GetRequestId()) {
		return m.stampAttempt(ctx, spec)
	}

	if err := mayTry(m.refusedCreates, spec.GetPlan(), creating); err != nil {
		m.creates.Leave(spec.GetPlan().GetRequestId())

		return err
	}

	if err := m.askPlace(ctx, spec); err != nil {
		return err
	}

	made, err := m.callCreate(ctx, spec, userData)
	triedFor(m.refusedCreates, spec.GetPlan(), err)

	if err == nil {
		spec.InstanceId, spec.Create = made.Id, nil

		// Of more than a boot disk the IDs are in no answer.
		if made.BootDiskId != "" && len(spec.GetPlan().GetDisks()) == 0 {
			spec.Disks = []*specs.DiskRef{{Id: made.BootDiskId, Name: spec.GetPlan().GetBootDisk().GetName(), Kind: string(naming.KindBoot)}}
		}

		return storeNow()
	}

	return m.createFailed(ctx, spec, err)
}

// callCreate makes the call and gives the place back.
func (m *Machines) callCreate(ctx context.Context, spec *specs.InstanceSpec, userData string) (*oxide.Instance, error) {
	m.setUntried(spec.GetPlan().GetRequestId(), false)

	began := m.now()
	defer func() { m.creates.Done(spec.GetPlan().GetRequestId(), m.now().Sub(began)) }()

	return m.cfg.Rack.CreateInstance(ctx, spec.GetPlan().GetProjectId(), m.params(spec, userData))
}

// creating begins each line about a create.
const creating = "creating the instance: "

// createFailed stores what is known about a create that did not succeed.
func (m *Machines) createFailed(ctx context.Context, spec *specs.InstanceSpec, err error) error {
	plan, attempt := spec.GetPlan(), spec.GetCreate()
	class := rack.ClassOf(err)
	attempt.LastError = rack.Reason(err)

	if class.Unsure() {
		m.gaveUpNow(spec)

		return &Wait{
			Reason: creating + "no sure answer, looking: " + attempt.GetLastError(),
			After:  pause(attempt.GetCount()) / 4, Cause: err,
		}
	}

	// From here on the rack has said that nothing is left of the call.
	switch {
	case class == rack.ClassExists:
		return m.nameTaken(ctx, spec, err)
	case class == rack.ClassGone && imageGone(err):
		// Not all tokens may use every image that they see in a list, so this may
		// come again at once and must not cost a call each time.
		attempt.Failed = true
		attempt.LastError = "the image is gone, or the token needs silo viewer: " + attempt.GetLastError()

		return ErrImageGone
	case groupVanished(spec, err):
		attempt.Failed, spec.SetGroupId = true, ""

		return &Wait{Reason: creating + attempt.GetLastError(), After: pause(attempt.GetCount()), Cause: err}
	case class.Passing(), addressRefused(plan, err):
		attempt.Failed = true

		return &Wait{Reason: creating + attempt.GetLastError(), After: pause(attempt.GetCount()), Cause: err}
	default:
		attempt.Failed, attempt.Mend = true, true

		return &Wait{Reason: creating + attempt.GetLastError(), After: time.Second, Cause: err}
	}
}

// imageGone tells a vanished image from a vanished project, subnet or group.
func imageGone(err error) bool { return strings.Contains(rack.Reason(err), "image with id") }

// nameTaken finds out whose name is in the way: the instance's is looked at in
// the next run; a disk may be our own, left by an instance that is no more.
func (m *Machines) nameTaken(ctx context.Context, spec *specs.InstanceSpec, err error) error {
	plan := spec.GetPlan()
	kind, name, _ := rack.Exists(err)

	switch kind {
	case "disk":
	case "instance":
		// Looked up in the next run.
		return &Wait{Reason: creating + rack.Reason(err), After: time.Second, Cause: err}
	default:
		spec.Create.Failed = true

		return &Wait{Reason: creating + rack.Reason(err), After: pause(spec.GetCreate().GetCount()), Cause: err}
	}

	disk, viewErr := m.cfg.Rack.ViewDiskByName(ctx, plan.GetProjectId(), name)

	switch {
	case rack.ClassOf(viewErr) == rack.ClassGone:
		return waitFor(time.Second, "creating the instance: disk %q is just going away", name)
	case viewErr != nil:
		return viewErr
	case !m.ours(disk.Description, plan.GetRequestId(), naming.KindBoot, naming.KindData):
		return mend(err, "a disk named %q that is not ours is in project %q: rename or delete it", name, plan.GetProjectName())
	}

	if w := m.notYet(*disk); w != nil {
		return w
	}

	waits, err := m.inTurn(ctx, m.deletes, plan.GetRequestId(), "delete a left-over disk", func(ctx context.Context) error {
		return m.deleteDisk(ctx, *disk)
	})
	if err := sooner(waits, err); err != nil {
		return err
	}

	return waitFor(time.Second, "removed the left-over disk %q", disk.Name)
}

// Known says that the IDs of an instance and of all its disks are known.
func Known(spec *specs.InstanceSpec) bool {
	return spec.GetInstanceId() != "" && len(spec.GetDisks()) == 1+len(spec.GetPlan().GetDisks())
}

// recordDisks stores the IDs of the disks made with the instance. Without them
// a later teardown could not tell our disks after the instance is gone.
func (m *Machines) recordDisks(ctx context.Context, spec *specs.InstanceSpec) error {
	if Known(spec) {
		return nil
	}

	want := 1 + len(spec.GetPlan().GetDisks())

	refs, err := m.ownDisks(ctx, spec)
	if err == nil && len(refs) < want {
		refs, err = m.missingDisks(ctx, spec, len(refs), want)
	}

	if rack.ClassOf(err) == rack.ClassGone {
		return m.vanished(ctx, spec)
	}

	if err != nil {
		return err
	}

	spec.Disks = refs

	return nil
}

// ownDisks are the disks attached to the instance that were made for it.
func (m *Machines) ownDisks(ctx context.Context, spec *specs.InstanceSpec) ([]*specs.DiskRef, error) {
	mine := func(d *oxide.Disk) bool {
		return m.ours(d.Description, spec.GetPlan().GetRequestId(), naming.KindBoot, naming.KindData)
	}

	attached, err := m.cfg.Rack.SeekInstanceDisks(ctx, spec.GetInstanceId(), func(all []oxide.Disk) bool {
		n := 0

		for i := range all {
			if mine(&all[i]) {
				n++
			}
		}

		return n > len(spec.GetPlan().GetDisks())
	})
	if err != nil {
		return nil, err
	}

	var refs []*specs.DiskRef

	for _, d := range attached {
		if mine(&d) {
			mark, _ := naming.Parse(d.Description)
			refs = append(refs, &specs.DiskRef{Id: d.Id, Name: string(d.Name), Kind: string(mark.Kind)})
		}
	}

	return refs, nil
}

// missingDisks waits for the disks of an instance that is still being created. On
// any other one they were attached, and somebody has taken some away.
func (m *Machines) missingDisks(ctx context.Context, spec *specs.InstanceSpec, found, want int) ([]*specs.DiskRef, error) {
	i, err := m.cfg.Rack.ViewInstance(ctx, spec.GetInstanceId())
	if err != nil {
		return nil, err
	}

	if i.RunState == oxide.InstanceStateCreating {
		return nil, waitFor(2*time.Second, "%d of the instance's %d disks are attached so far", found, want)
	}

	// They may have been attached since they were looked for.
	refs, err := m.ownDisks(ctx, spec)
	if err == nil && len(refs) < want {
		err = mend(nil, "instance %q has %d of its %d disks, somebody has detached or deleted one: attach it again, or delete this request",
			spec.GetPlan().GetInstanceName(), len(refs), want)
	}

	return refs, err
}
