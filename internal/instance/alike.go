package instance

import (
	"crypto/sha256"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/backoff"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// newShared is for what the rack refuses to one machine as it will to all that are
// like it: for lack of room or quota, or for something that a person must mend.
func newShared(now func() time.Time) *backoff.Shared {
	return &backoff.Shared{First: 5 * time.Second, Most: 2 * time.Minute, Now: now}
}

// alike is the same for plans that differ only in whose they are: the rack has
// room for all of them or for none. A smaller machine may fit where this one does
// not, so it is never held up by it.
func alike(plan *specs.Plan) string {
	p, ok := proto.Clone(plan).(*specs.Plan)
	if !ok {
		return plan.GetRequestId()
	}

	p.RequestHash, p.RequestId, p.InstanceName, p.PlannedAt, p.Image, p.Description = "", "", "", nil, nil, ""

	for _, d := range append(p.GetDisks(), p.GetBootDisk()) {
		if d != nil {
			d.Name = ""
		}
	}

	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return plan.GetRequestId()
	}

	sum := sha256.Sum256(text)

	return string(sum[:])
}

// sharedCause says that a failure is that of all machines alike.
func sharedCause(class rack.Class) bool {
	switch class {
	case rack.ClassCapacity, rack.ClassInvalid, rack.ClassGone, rack.ClassForbidden:
		return true
	case rack.ClassOK, rack.ClassExists, rack.ClassCredentials, rack.ClassConflict, rack.ClassBusy, rack.ClassInternal,
		rack.ClassVersion, rack.ClassLost, rack.ClassFenced:
		return false
	}

	return false
}

// mayTry answers a wait while another machine that is alike tries for this one.
func mayTry(s *backoff.Shared, plan *specs.Plan, doing string) error {
	why, again := s.Ask(alike(plan), plan.GetRequestId())
	if why == nil {
		return nil
	}

	return waitFor(again, "%s%s", doing, rack.Reason(why))
}

// triedFor notes how a try went for all that are alike.
func triedFor(s *backoff.Shared, plan *specs.Plan, err error) {
	switch class := rack.ClassOf(err); {
	case err == nil:
		s.Done(alike(plan), plan.GetRequestId())
	case sharedCause(class) && (class != rack.ClassGone || !imageGone(err)):
		s.Failed(alike(plan), plan.GetRequestId(), err)
	default:
		s.Leave(plan.GetRequestId())
	}
}
