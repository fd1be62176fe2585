package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
)

// leftovers is an inventory that can be told in a line per object.
type leftovers struct{ operator.Rack }

// String lists all objects.
func (l leftovers) String() string {
	var b strings.Builder

	for _, o := range l.Instances {
		fmt.Fprintf(&b, "instance %s (%s): %s\n", o.Name, o.RunState, o.Description)
	}

	for _, o := range l.Disks {
		fmt.Fprintf(&b, "disk %s (%s): %s\n", o.Name, o.State.State(), o.Description)
	}

	for _, o := range l.FloatingIPs {
		fmt.Fprintf(&b, "floating address %s (on %q): %s\n", o.Name, o.InstanceId, o.Description)
	}

	for _, o := range l.Snapshots {
		fmt.Fprintf(&b, "snapshot %s: %s\n", o.Name, o.Description)
	}

	for _, o := range slices.Concat(l.ProjectImages, l.SiloImages) {
		fmt.Fprintf(&b, "image %s: %s\n", o.Name, o.Description)
	}

	return b.String()
}

// machines are those that a set must have come to.
type machines struct {
	set   string
	count int
	// disks are the roles and sizes in GiB of each machine's disks.
	disks map[string]int
	nics  int
	// addresses says what else each has.
	addresses addresses
}

func plain(set string, count int) machines {
	return machines{set: set, count: count, disks: map[string]int{"boot": 10}, nics: 1}
}

// rest waits until there are exactly the machines asked for, and checks each.
// Images is how many images there may be.
func (r *crashRun) rest(images []int, want ...machines) {
	r.t.Helper()

	count, disks, floating := 0, 0, 0
	for _, m := range want {
		count += m.count
		floating += m.count * m.addresses.made
		disks += m.count * len(m.disks)
	}

	r.until(fmt.Sprintf("exactly %d machines with %d disks", count, disks), func() bool {
		requests := r.requests()
		if len(requests) != count {
			return false
		}

		for _, m := range want {
			if r.joinedOf(requests, m.set) != m.count {
				return false
			}
		}

		left := r.ours()

		return len(left.Instances) == count && len(left.Disks) == disks && len(left.Snapshots) == 0 && len(left.FloatingIPs) == floating &&
			slices.Contains(images, left.Images())
	})

	left := r.ours()

	for _, m := range want {
		for _, request := range r.requests() {
			if request.Set == m.set {
				r.checkMachine(left, m, request)
			}
		}
	}

	r.checkOmni(count)
	r.foreign.check(r.t, r.inventory())
}

func (r *crashRun) joinedOf(requests []operator.Request, set string) int {
	n := 0

	for _, q := range requests {
		if q.Set == set && q.Joined && q.Stage == "PROVISIONED" && !q.TearingDown {
			n++
		}
	}

	return n
}

// checkMachine holds one machine against its request.
func (r *crashRun) checkMachine(left leftovers, want machines, request operator.Request) {
	r.t.Helper()

	at := slices.IndexFunc(left.Instances, func(i oxide.Instance) bool { return string(i.Name) == naming.Instance(request.ID) })
	if at < 0 {
		r.t.Fatalf("request %s has no instance", request.ID)
	}

	instance := left.Instances[at]

	if mark, _ := naming.Parse(instance.Description); mark.Key != naming.RequestKey(request.ID) {
		r.t.Errorf("instance %s is marked %q", instance.Name, instance.Description)
	}

	if instance.RunState != oxide.InstanceStateRunning || instance.Id != request.MachineID {
		r.t.Errorf("instance %s is %s; machine %s has joined", instance.Id, instance.RunState, request.MachineID)
	}

	found := map[string]int{}

	for _, d := range left.Disks {
		if a, ok := d.State.AsAttached(); ok && a.Instance == instance.Id {
			found[string(d.Name)] = int(d.Size >> 30)
		}
	}

	for role, size := range want.disks {
		if name := naming.Disk(role, request.ID); found[name] != size {
			r.t.Errorf("disk %s of %s has %d GiB, must have %d", name, request.ID, found[name], size)
		}
	}

	if len(found) != len(want.disks) {
		r.t.Errorf("instance %s has the disks %v", instance.Name, found)
	}

	nics := must(r.Operator.Rack().InstanceNetworkInterfaceListAllPages(r.t.Context(),
		oxide.InstanceNetworkInterfaceListParams{Instance: oxide.NameOrId(instance.Id)}))(r.t)
	if len(nics) != want.nics {
		r.t.Errorf("instance %s has %d interfaces", instance.Name, len(nics))
	}

	r.checkAddresses(instance.Id, request.ID, nics, want.addresses)
	r.checkPatch(request.ID, instance.Id)
}

// checkPatch: the request has one config patch, with its own provider ID.
func (r *crashRun) checkPatch(requestID, instanceID string) {
	r.t.Helper()

	patches := must(safe.StateListAll[*infra.ConfigPatchRequest](r.t.Context(), r.Omni.AdminState(),
		state.WithLabelQuery(resource.LabelEqual(omni.LabelMachineRequest, requestID))))(r.t)

	if patches.Len() != 1 {
		r.t.Errorf("request %s has %d config patches", requestID, patches.Len())

		return
	}

	data := must(patches.Get(0).TypedSpec().Value.GetUncompressedData())(r.t)
	defer data.Free()

	if !strings.Contains(string(data.Data()), "providerID: oxide://"+instanceID+"\n") {
		r.t.Errorf("the config patch of %s, which is instance %s, is %q", requestID, instanceID, data.Data())
	}
}

func (r *crashRun) checkOmni(count int) {
	r.t.Helper()

	if o := must(r.Operator.Omni(r.t.Context()))(r.t); o.Machines != count || o.Links != count || o.ConfigPatchRequests != count {
		r.t.Errorf("Omni has %d machines, %d links and %d config patches for %d requests",
			o.Machines, o.Links, o.ConfigPatchRequests, count)
	}
}

// gone waits until nothing is left of any machine, here or there.
func (r *crashRun) gone() {
	r.t.Helper()

	r.until("everything to be removed", func() bool {
		return len(r.requests()) == 0 && r.ours().Leftovers() == 0
	})
	r.until("the daemon's own records to be removed", func() bool { return len(r.leftOver()) == 0 })
	r.checkOmni(0)
	r.foreign.check(r.t, r.inventory())
	r.checkDetached()
}
