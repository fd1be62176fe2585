package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	omnires "github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
)

// rules hold each call of the daemon against what must be true at that very
// moment, which nobody who looks now and then would see.
type rules struct {
	p *place

	mu sync.Mutex
	// let holds the keys of requests that were let go.
	let map[string]string
}

func newRules(p *place) *rules { return &rules{p: p, let: map[string]string{}} }

// rack is told of a call of the daemon to the rack before it is done.
func (u *rules) rack(op, path string) {
	switch op {
	case "instance_stop", "instance_delete":
		if name, request := u.of(path); request != nil && request.Metadata().Phase() == resource.PhaseRunning {
			u.p.t.Errorf("%s of %s although its request is wanted", op, name)
		}
	case "instance_start":
		if name, request := u.of(path); request != nil && !u.patched(request.Metadata().ID()) {
			u.p.t.Errorf("%s is started before its config patch is in place", name)
		}
	}
}

// of is the instance that a call is about, and its request, nil without one.
func (u *rules) of(path string) (string, *infra.MachineRequest) {
	id, _, _ := strings.Cut(strings.TrimPrefix(path, "/v1/instances/"), "/")
	id, _, _ = strings.Cut(id, "?")

	instance, ok := u.p.Rack.Inspect(id)
	if !ok {
		return id, nil
	}

	requests := must(safe.StateListAll[*infra.MachineRequest](context.Background(), u.p.Omni.AdminState()))(u.p.t)

	for r := range requests.All() {
		if naming.Instance(r.Metadata().ID()) == instance.Name {
			return instance.Name, r
		}
	}

	return instance.Name, nil
}

func (u *rules) patched(request string) bool {
	patches := must(safe.StateListAll[*infra.ConfigPatchRequest](context.Background(), u.p.Omni.AdminState(),
		state.WithLabelQuery(resource.LabelEqual(omnires.LabelMachineRequest, request))))(u.p.t)

	return patches.Len() > 0
}

// omni is told of a write of the daemon to Omni when it has taken effect.
func (u *rules) omni(verb, kind, id string) {
	if verb != "Update" && verb != "Teardown" && verb != "Destroy" {
		return
	}

	switch kind {
	case infra.MachineRequestStatusType:
		u.provisioned(id)
	case infra.MachineRequestType:
		u.released(id)
	}
}

// provisioned: whoever is told to be provisioned runs.
func (u *rules) provisioned(id string) {
	ctx, st := context.Background(), u.p.Omni.AdminState()

	status, err := safe.StateGetByID[*infra.MachineRequestStatus](ctx, st, id)
	if err != nil || status.TypedSpec().Value.GetStage() != specs.MachineRequestStatusSpec_PROVISIONED {
		return
	}

	request, err := safe.StateGetByID[*infra.MachineRequest](ctx, st, id)
	if err != nil || request.Metadata().Phase() != resource.PhaseRunning {
		return
	}

	states := must(safe.StateListAll[*provider.Instance](ctx, st))(u.p.t)

	for own := range states.All() {
		if own.Metadata().ID() != id {
			continue
		}

		instance, _ := u.p.Rack.Inspect(own.TypedSpec().Value.GetInstanceId())
		if instance.RunState != string(oxide.InstanceStateRunning) {
			u.p.t.Errorf("request %s is provisioned and its instance is %q", id, instance.RunState)
		}

		return
	}

	u.p.t.Errorf("request %s is provisioned and has no state", id)
}

// released: a request without our finalizer has nothing in the rack.
func (u *rules) released(id string) {
	ctx := context.Background()

	request, err := safe.StateGetByID[*infra.MachineRequest](ctx, u.p.Omni.AdminState(), id)
	if err == nil && (request.Metadata().Phase() == resource.PhaseRunning || !request.Metadata().Finalizers().Empty()) {
		return
	}

	u.mu.Lock()
	u.let[naming.RequestKey(id)] = id
	u.mu.Unlock()

	let := u.letGo()

	// A rack that is away shows nothing; what is left is seen later.
	if left, err := u.p.Operator.Inventory(ctx); err == nil {
		u.nothingOf(let, leftovers{left})
	}
}

// letGo are the requests that were let go so far, by key.
func (u *rules) letGo() map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()

	return maps.Clone(u.let)
}

// nothingOf: what was let go before somebody looked is not there, and does not
// come back.
func (u *rules) nothingOf(let map[string]string, left leftovers) {
	look := func(kind, name, description string) {
		if mark, ok := naming.Parse(description); ok && slices.Contains(machineKinds, mark.Kind) && let[mark.Key] != "" && mark.Provider == crashProvider {
			u.p.t.Errorf("request %s was let go, and %s %s is there", let[mark.Key], kind, name)
		}
	}

	for _, o := range left.Instances {
		look("instance", string(o.Name), o.Description)
	}

	for _, o := range left.Disks {
		look("disk", string(o.Name), o.Description)
	}

	for _, o := range left.FloatingIPs {
		look("floating address", string(o.Name), o.Description)
	}
}

// machineKinds are the kinds of objects that belong to one request.
var machineKinds = []naming.Kind{naming.KindInstance, naming.KindBoot, naming.KindData, naming.KindIP}
