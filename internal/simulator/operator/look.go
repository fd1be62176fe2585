package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
)

// Request is a machine request as a user of Omni sees it.
type Request struct {
	ID, Set, Provider string
	TearingDown       bool
	// Stage is that of the request's status, empty before there is one. Status
	// is what Omni's page shows beside it, Error what it shows when FAILED.
	Stage, Status, Error string
	// MachineID is the machine that has joined for it.
	MachineID string
	// Joined says that the machine is in Omni and connected.
	Joined bool
}

// Requests lists all machine requests, sorted by ID.
func (o *Operator) Requests(ctx context.Context) ([]Request, error) {
	requests, err := safe.StateListAll[*infra.MachineRequest](ctx, o.st)
	if err != nil {
		return nil, fmt.Errorf("listing machine requests: %w", err)
	}

	statuses, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, o.st)
	if err != nil {
		return nil, fmt.Errorf("listing statuses of machine requests: %w", err)
	}

	machines, err := safe.StateListAll[*omni.Machine](ctx, o.st)
	if err != nil {
		return nil, fmt.Errorf("listing machines: %w", err)
	}

	byID := map[resource.ID]*infra.MachineRequestStatus{}
	for s := range statuses.All() {
		byID[s.Metadata().ID()] = s
	}

	connected := map[resource.ID]bool{}
	for m := range machines.All() {
		connected[m.Metadata().ID()] = m.TypedSpec().Value.GetConnected()
	}

	var all []Request

	for r := range requests.All() {
		set, _ := r.Metadata().Labels().Get(omni.LabelMachineRequestSet)
		provider, _ := r.Metadata().Labels().Get(omni.LabelInfraProviderID)
		view := Request{
			ID: r.Metadata().ID(), Set: set, Provider: provider, TearingDown: r.Metadata().Phase() == resource.PhaseTearingDown,
		}

		if s := byID[view.ID]; s != nil {
			v := s.TypedSpec().Value
			view.Stage, view.Status, view.Error, view.MachineID = v.GetStage().String(), v.GetStatus(), v.GetError(), v.GetId()
			view.Joined = connected[v.GetId()]
		}

		all = append(all, view)
	}

	slices.SortFunc(all, func(a, b Request) int { return cmp.Compare(a.ID, b.ID) })

	return all, nil
}

// Omni counts what Omni holds besides requests.
type Omni struct {
	Machines, Links, ConfigPatchRequests int
	// Ready is the number of cluster machines that run their config.
	Ready int
	// ConfigErrors are the reasons why a machine's config was not applied.
	ConfigErrors []string
}

// Omni looks at machines, links and patches.
func (o *Operator) Omni(ctx context.Context) (Omni, error) {
	var out Omni

	machines, err := safe.StateListAll[*omni.Machine](ctx, o.st)
	if err != nil {
		return out, err
	}

	links, err := safe.StateListAll[*siderolink.Link](ctx, o.st)
	if err != nil {
		return out, err
	}

	patches, err := safe.StateListAll[*infra.ConfigPatchRequest](ctx, o.st)
	if err != nil {
		return out, err
	}

	members, err := safe.StateListAll[*omni.ClusterMachineStatus](ctx, o.st)
	if err != nil {
		return out, err
	}

	out.Machines, out.Links, out.ConfigPatchRequests = machines.Len(), links.Len(), patches.Len()

	for m := range members.All() {
		if m.TypedSpec().Value.GetReady() {
			out.Ready++
		}

		if e := m.TypedSpec().Value.GetLastConfigError(); e != "" {
			out.ConfigErrors = append(out.ConfigErrors, e)
		}
	}

	return out, nil
}

// Rack is what a project of the rack holds, and the images of its silo.
type Rack struct {
	Instances     []oxide.Instance
	Disks         []oxide.Disk
	Snapshots     []oxide.Snapshot
	ProjectImages []oxide.Image
	SiloImages    []oxide.Image
	FloatingIPs   []oxide.FloatingIp
}

// Leftovers is the number of objects that should be gone when there is no
// machine: everything but images.
func (r Rack) Leftovers() int {
	return len(r.Instances) + len(r.Disks) + len(r.Snapshots) + len(r.FloatingIPs)
}

// Images is the number of images in the silo and the project.
func (r Rack) Images() int { return len(r.ProjectImages) + len(r.SiloImages) }

// Inventory lists the project and the silo's images.
func (o *Operator) Inventory(ctx context.Context) (Rack, error) {
	var (
		out     Rack
		err     error
		project = oxide.NameOrId(o.cfg.Project)
	)

	if out.Instances, err = o.rack.InstanceListAllPages(ctx, oxide.InstanceListParams{Project: project}); err != nil {
		return out, fmt.Errorf("listing instances: %w", err)
	}

	if out.Disks, err = o.rack.DiskListAllPages(ctx, oxide.DiskListParams{Project: project}); err != nil {
		return out, fmt.Errorf("listing disks: %w", err)
	}

	if out.Snapshots, err = o.rack.SnapshotListAllPages(ctx, oxide.SnapshotListParams{Project: project}); err != nil {
		return out, fmt.Errorf("listing snapshots: %w", err)
	}

	if out.ProjectImages, err = o.rack.ImageListAllPages(ctx, oxide.ImageListParams{Project: project}); err != nil {
		return out, fmt.Errorf("listing images of the project: %w", err)
	}

	if out.SiloImages, err = o.rack.ImageListAllPages(ctx, oxide.ImageListParams{}); err != nil {
		return out, fmt.Errorf("listing images of the silo: %w", err)
	}

	if out.FloatingIPs, err = o.rack.FloatingIpListAllPages(ctx, oxide.FloatingIpListParams{Project: project}); err != nil {
		return out, fmt.Errorf("listing floating addresses: %w", err)
	}

	return out, nil
}
