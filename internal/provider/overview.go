package provider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	omnires "github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
)

// Overview is what Omni holds of this provider at one moment, for people.
type Overview struct {
	Provider string `json:"provider"`
	// OmniVersion is empty if Omni did not say.
	OmniVersion string `json:"omni_version"`
	// Owner is empty for a provider that has never run.
	Owner string `json:"owner"`
	// Lease is nil without one.
	Lease *LeaseView `json:"lease"`
	// Health is what the daemon has told Omni, nil if it never did.
	Health   *HealthView   `json:"health"`
	Requests []RequestView `json:"requests"`
	Uploads  []UploadView  `json:"uploads"`
}

// LeaseView is the lease.
type LeaseView struct {
	Holder  string    `json:"holder"`
	Term    uint64    `json:"term"`
	Renewed time.Time `json:"renewed"`
}

// HealthView is the daemon's health as Omni knows it. Error is empty when all is
// well.
type HealthView struct {
	Heartbeat time.Time `json:"heartbeat"`
	Error     string    `json:"error"`
}

// RequestView is one machine request.
type RequestView struct {
	ID string `json:"id"`
	// Set is the machine set that it is of, empty for one that somebody made.
	Set string `json:"set"`
	// Stage is new, provisioning, provisioned, failed or removing; Step is where
	// its state stands, empty without one.
	Stage string `json:"stage"`
	Step  string `json:"step"`
	// Waits is what it waits for, and why.
	Waits   string    `json:"waits"`
	Created time.Time `json:"created"`
	// Machine is the machine's UUID in Omni, empty before it has joined.
	Machine string `json:"machine"`
	Talos   string `json:"talos"`
	// Project and Instance are those of the plan, Image the image that it has.
	Project      string `json:"project"`
	Instance     string `json:"instance"`
	InstanceID   string `json:"instance_id"`
	ImageID      string `json:"image_id"`
	RunningSince string `json:"running_since,omitempty"`
}

// UploadView is an image that requests wait for.
type UploadView struct {
	Talos     string `json:"talos"`
	Schematic string `json:"schematic"`
	// Project is the one through which it goes, for the first of the requests.
	Project string `json:"project"`
	// Requests counts those that wait.
	Requests int `json:"requests"`
	// Percent is -1 as long as it is not known.
	Percent int `json:"percent"`
	// Says is the line that the requests show.
	Says string `json:"says"`
}

// Overview reads it. It changes nothing.
func (c *Connection) Overview(ctx context.Context) (*Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, prepareDeadline)
	defer cancel()

	o := &Overview{Provider: providerID(), Requests: []RequestView{}, Uploads: []UploadView{}}

	for _, read := range []func(context.Context, *Overview) error{c.readSelf, c.readLease, c.readHealth, c.readRequests} {
		if err := read(ctx, o); err != nil {
			return nil, c.Explain(err)
		}
	}

	return o, nil
}

func (c *Connection) readSelf(ctx context.Context, o *Overview) error {
	var err error
	if o.OmniVersion, err = readVersion(ctx, c.state); err != nil {
		return err
	}

	o.Owner, err = readOwner(ctx, c.state)
	if state.IsNotFoundError(err) {
		return nil
	}

	return err
}

func (c *Connection) readLease(ctx context.Context, o *Overview) error {
	l, err := lease.Peek(ctx, c.state, namespace(), resourceType(leaseName))
	if err == nil && l != nil {
		o.Lease = &LeaseView{Holder: l.Holder, Term: l.Term, Renewed: l.Renewed}
	}

	return err
}

func (c *Connection) readHealth(ctx context.Context, o *Overview) error {
	h, err := safe.StateGetByID[*infra.ProviderHealthStatus](ctx, c.state, providerID())
	if state.IsNotFoundError(err) {
		return nil
	}

	if err == nil {
		o.Health = &HealthView{Heartbeat: h.TypedSpec().Value.GetLastHeartbeatTimestamp().AsTime(), Error: h.TypedSpec().Value.GetError()}
	}

	return err
}

func (c *Connection) readRequests(ctx context.Context, o *Overview) error {
	all, err := safe.StateListAll[*infra.MachineRequest](ctx, c.state)
	if err != nil {
		return fmt.Errorf("listing the machine requests in Omni: %w", err)
	}

	statuses, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, c.state)
	if err != nil {
		return fmt.Errorf("listing the statuses of machine requests in Omni: %w", err)
	}

	states, _, err := listStates(ctx, c.state)
	if err != nil {
		return err
	}

	told := map[resource.ID]*omnispecs.MachineRequestStatusSpec{}
	for s := range statuses.All() {
		told[s.Metadata().ID()] = s.TypedSpec().Value
	}

	stored := map[resource.ID]*Instance{}
	for _, s := range states {
		stored[s.Metadata().ID()] = s
	}

	uploads := map[string]*UploadView{}

	for r := range all.All() {
		if of, _ := r.Metadata().Labels().Get(omnires.LabelInfraProviderID); of != providerID() {
			continue
		}

		id := r.Metadata().ID()
		v := viewRequest(r, told[id], stored[id])
		o.Requests = append(o.Requests, v)

		if u := viewUpload(v, stored[id]); u != nil {
			key := u.Talos + u.Schematic
			if uploads[key] == nil {
				uploads[key] = u
			}

			uploads[key].Requests++
		}
	}

	slices.SortFunc(o.Requests, func(a, b RequestView) int { return cmp.Compare(a.ID, b.ID) })

	for _, u := range uploads {
		o.Uploads = append(o.Uploads, *u)
	}

	slices.SortFunc(o.Uploads, func(a, b UploadView) int {
		return cmp.Or(cmp.Compare(a.Talos, b.Talos), cmp.Compare(a.Schematic, b.Schematic))
	})

	return nil
}

// removalWords are shown of a request that is removed: Omni keeps no status then.
const removalWords = "being removed: health and the daemon's log say what it waits for"

func viewRequest(r *infra.MachineRequest, status *omnispecs.MachineRequestStatusSpec, res *Instance) RequestView {
	v := RequestView{
		ID: r.Metadata().ID(), Created: r.Metadata().Created(), Talos: r.TypedSpec().Value.GetTalosVersion(),
		Stage: stageName(r.Metadata().Phase() == resource.PhaseRunning, status.GetStage()),
		Waits: cmp.Or(status.GetStatus(), status.GetError()), Machine: status.GetId(),
	}
	v.Set, _ = r.Metadata().Labels().Get(omnires.LabelMachineRequestSet)

	switch v.Stage {
	case stageBroken:
		v.Waits = cmp.Or(status.GetError(), status.GetStatus())
	case stageRemoving:
		v.Waits = removalWords
	case stageNew:
		v.Waits = cmp.Or(v.Waits, "for the daemon")
	case stageDone:
		if v.Waits = ""; v.Machine == "" {
			v.Waits = "for the machine to join Omni"
		}
	}

	if res == nil {
		return v
	}

	spec := res.TypedSpec().Value
	v.Step = stepOf(res)
	v.Project, v.Instance = spec.GetPlan().GetProjectName(), spec.GetPlan().GetInstanceName()
	v.InstanceID, v.ImageID = spec.GetInstanceId(), spec.GetImage().GetId()

	if at := spec.GetRunningSince(); at != nil {
		v.RunningSince = at.AsTime().Format(time.RFC3339)
	}

	return v
}

// viewUpload is the image that a request waits for, nil if it does not.
func viewUpload(v RequestView, res *Instance) *UploadView {
	if res == nil || v.Step != stepImage || v.ImageID != "" || v.Stage == stageRemoving || v.Stage == stageDone {
		return nil
	}

	plan := res.TypedSpec().Value.GetPlan()
	u := &UploadView{
		Talos: plan.GetImage().GetTalosVersion(), Schematic: plan.GetImage().GetSchematicId(), Project: v.Project, Percent: -1, Says: v.Waits,
	}

	if n, ok := percentage(v.Waits); ok {
		u.Percent = n
	}

	return u
}
