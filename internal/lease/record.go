package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
)

// recordID is the ID of the one record.
const recordID = "lease"

// format is that of the records written here.
const format = 1

// unknownHolder holds a record that was made in place of a missing one: whoever
// held the missing one may not have noticed yet.
const unknownHolder = "unknown"

// Resource is the record as Omni stores it. Its type holds the provider ID, which
// is not known to the Go type.
type Resource struct {
	md   resource.Metadata
	spec protobuf.ResourceSpec[specs.LeaseSpec, *specs.LeaseSpec]
}

// Metadata implements resource.Resource.
func (r *Resource) Metadata() *resource.Metadata { return &r.md }

// Spec implements resource.Resource.
func (r *Resource) Spec() any { return &r.spec }

// DeepCopy implements resource.Resource.
func (r *Resource) DeepCopy() resource.Resource { //nolint:ireturn // as the interface wants
	return &Resource{md: r.md.Copy(), spec: r.spec.DeepCopy()}
}

// UnmarshalProto implements protobuf.ResourceUnmarshaler.
func (r *Resource) UnmarshalProto(md *resource.Metadata, data []byte) error {
	if err := r.spec.UnmarshalProto(data); err != nil {
		return err
	}

	r.md = *md

	return nil
}

// Lease is what the record says.
func (r *Resource) Lease() *specs.LeaseSpec { return r.spec.Value }

func (r *Resource) free() bool { return r.known() && r.Lease().GetHolder() == "" }

// known says that the record can be judged. Of any other only its standing still
// tells something.
func (r *Resource) known() bool { return r.Lease().GetFormat() == format }

// patience is for how long the record must not have changed before it is taken.
func (r *Resource) patience(own time.Duration) time.Duration {
	if !r.known() {
		return MaxDuration
	}

	return max(own, min(r.Lease().GetDuration().AsDuration(), MaxDuration))
}

// holder is who holds the record, for people.
func (r *Resource) holder() string {
	switch {
	case !r.known():
		return fmt.Sprintf("a process with records of format %d", r.Lease().GetFormat())
	case r.free():
		return ""
	case r.Lease().GetHost() != "":
		return r.Lease().GetHost()
	default:
		return r.Lease().GetHolder()
	}
}

// fresh is a record to be made.
func (k *Keeper) fresh(holder, host string, term uint64) *Resource {
	r := &Resource{md: resource.NewMetadata(k.cfg.Namespace, k.cfg.Type, recordID, resource.VersionUndefined)}
	r.spec = protobuf.NewResourceSpec(k.spec(holder, host, term, 1))

	return r
}

// over is what is written in place of a record that was read.
func (k *Keeper) over(r *Resource, holder, host string, term uint64) *Resource {
	return &Resource{md: r.md.Copy(), spec: protobuf.NewResourceSpec(k.spec(holder, host, term, r.Lease().GetSequence()+1))}
}

func (k *Keeper) spec(holder, host string, term, sequence uint64) *specs.LeaseSpec {
	return &specs.LeaseSpec{
		Format: format, Holder: holder, Host: host, Term: term, Sequence: sequence, Duration: durationpb.New(k.cfg.Duration),
	}
}

// read reads the record; nil if there is none.
func (k *Keeper) read(ctx context.Context) (*Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.call())
	defer cancel()

	res, err := k.cfg.Store.Get(ctx, resource.NewMetadata(k.cfg.Namespace, k.cfg.Type, recordID, resource.VersionUndefined))
	if state.IsNotFoundError(err) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("reading the lease from Omni: %w", err)
	}

	r, ok := res.(*Resource)
	if !ok || r.Lease() == nil {
		return nil, fmt.Errorf("reading the lease from Omni: it is a %T", res)
	}

	return r, nil
}

// create makes the record. made is false if somebody else did.
func (k *Keeper) create(ctx context.Context, r *Resource) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.call())
	defer cancel()

	return written(k.cfg.Store.Create(ctx, r))
}

// update writes the record over the version that was read. done is false if
// somebody else wrote first. A record that is being torn down serves as well.
func (k *Keeper) update(ctx context.Context, r *Resource) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.call())
	defer cancel()

	return written(k.cfg.Store.Update(ctx, r, state.WithExpectedPhaseAny()))
}

// written tells a lost race from a fault: a denied permission looks like an owner
// conflict, and an invalid write like a phase conflict.
func written(err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case state.IsNotFoundError(err):
		return false, nil
	case state.IsConflictError(err) && !state.IsOwnerConflictError(err) && !state.IsPhaseConflictError(err):
		return false, nil
	default:
		return false, fmt.Errorf("writing the lease to Omni: %w", err)
	}
}
