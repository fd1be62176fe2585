package janitor

import (
	"context"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

// Request is what matters here of a machine request.
type Request struct {
	ID string
	// Set is the ID of the request set that it belongs to, if it does.
	Set string
	// Project is the name or ID of the project in its class, empty if the class
	// can not be read.
	Project string
	// TearingDown says that Omni wants it gone; Held that it carries our
	// finalizer.
	TearingDown, Held bool
}

// State is what the provider has stored of a request.
type State struct {
	ID   string
	Spec *specs.InstanceSpec
	// Held says why neither it nor anything of its machine is ours to touch, in
	// one line: a newer version or another provider made it. Empty if it is ours.
	Held string
}

// Machine is a machine that has joined Omni.
type Machine struct {
	// UUID is what its firmware says of itself.
	UUID string
	// Request is the ID of the request that it was made for, if Omni knows.
	Request   string
	Connected bool
}

// Omni is what is asked of Omni. Lists are complete or fail.
type Omni interface {
	Requests(ctx context.Context) ([]Request, error)
	// Statuses are the IDs of the requests that have a status in Omni, Patches
	// of those that have config patches.
	Statuses(ctx context.Context) ([]string, error)
	Patches(ctx context.Context) ([]string, error)
	// States has one entry for each request, those of other providers included.
	States(ctx context.Context) ([]State, error)
	Machines(ctx context.Context) ([]Machine, error)
	// ImportRuns are the records of the processes that import images.
	ImportRuns(ctx context.Context) ([]image.RunInfo, error)

	// Request, HasStatus and HasState read one by its ID; a request that is not
	// there is nil.
	Request(ctx context.Context, id string) (*Request, error)
	HasStatus(ctx context.Context, id string) (bool, error)
	HasState(ctx context.Context, id string) (bool, error)

	// DestroyState removes a state, Tidy the status and the config patches of a
	// request, and Release our finalizer from a request that is tearing down. What
	// is gone already is done. What somebody else still holds is only torn down,
	// and is an error: it ends when they let go of it.
	DestroyState(ctx context.Context, id string) error
	Tidy(ctx context.Context, id string) error
	Release(ctx context.Context, id string) error
}

// dead tells whether a request is beyond what the SDK will ever do: it is
// tearing down and has neither a status, which Omni holds until the node has
// left its cluster, nor a state, without which the SDK does not call us.
func (r Request) dead(hasStatus, hasState bool) bool {
	return r.TearingDown && r.Held && !hasStatus && !hasState
}
