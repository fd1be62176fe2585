package provider

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/image-factory/pkg/schematic"
	"github.com/siderolabs/omni/client/pkg/infra/provision"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// PreviewOptions say for what a plan is shown.
type PreviewOptions struct {
	Rack *rack.Client
	// FactoryURL is that of the daemon.
	FactoryURL string
	// Request is the ID of a machine request, which need not be there.
	Request, Talos string
	// Class is what stands in providerdata, KernelArgs those beside it.
	Class      string
	KernelArgs []string
	// Scope is where the daemon keeps images of a class that does not say.
	Scope image.Scope
}

// Preview is what would be made for a machine request. Sizes are in bytes.
type Preview struct {
	Request     string           `json:"request" yaml:"request"`
	Set         string           `json:"set,omitempty" yaml:"set,omitempty"`
	Project     string           `json:"project" yaml:"project"`
	Instance    string           `json:"instance" yaml:"instance"`
	CPUs        uint32           `json:"cpus" yaml:"cpus"`
	Memory      uint64           `json:"memory" yaml:"memory"`
	Disks       []PreviewDisk    `json:"disks" yaml:"disks"`
	Interfaces  []PreviewNIC     `json:"network_interfaces" yaml:"network_interfaces"`
	ExternalIPs []PreviewAddress `json:"external_ips,omitempty" yaml:"external_ips,omitempty"`
	Groups      []PreviewGroup   `json:"anti_affinity_groups,omitempty" yaml:"anti_affinity_groups,omitempty"`
	Image       PreviewImage     `json:"image" yaml:"image"`
	Quota       []PreviewQuota   `json:"quota,omitempty" yaml:"quota,omitempty"`
	Notes       []string         `json:"notes,omitempty" yaml:"notes,omitempty"`
}

// PreviewDisk is a disk, the boot disk first.
type PreviewDisk struct {
	Name string `json:"name" yaml:"name"`
	Type string `json:"type" yaml:"type"`
	Size uint64 `json:"size" yaml:"size"`
}

// PreviewNIC is a network interface. Without an address the rack chooses one.
type PreviewNIC struct {
	Name       string   `json:"name" yaml:"name"`
	VPC        string   `json:"vpc" yaml:"vpc"`
	Subnet     string   `json:"subnet" yaml:"subnet"`
	IPConfig   string   `json:"ip_config" yaml:"ip_config"`
	Addresses  []string `json:"addresses,omitempty" yaml:"addresses,omitempty"`
	TransitIPs []string `json:"transit_ips,omitempty" yaml:"transit_ips,omitempty"`
}

// PreviewAddress is an external address. Of a floating one that is made for the
// machine the ID is not known.
type PreviewAddress struct {
	Type       string `json:"type" yaml:"type"`
	IPVersion  string `json:"ip_version,omitempty" yaml:"ip_version,omitempty"`
	Pool       string `json:"pool,omitempty" yaml:"pool,omitempty"`
	FloatingIP string `json:"floating_ip,omitempty" yaml:"floating_ip,omitempty"`
	ID         string `json:"id,omitempty" yaml:"id,omitempty"`
}

// PreviewGroup is an anti-affinity group.
type PreviewGroup struct {
	Name   string `json:"name,omitempty" yaml:"name,omitempty"`
	ID     string `json:"id,omitempty" yaml:"id,omitempty"`
	Policy string `json:"policy,omitempty" yaml:"policy,omitempty"`
	// Made says that it would have to be made for the machine set first.
	Made bool `json:"made" yaml:"made"`
}

// PreviewImage is the image of the boot disk.
type PreviewImage struct {
	Name      string `json:"name" yaml:"name"`
	Talos     string `json:"talos" yaml:"talos"`
	Schematic string `json:"schematic" yaml:"schematic"`
	Factory   string `json:"factory" yaml:"factory"`
	// ID is that of the image, empty if it would have to be uploaded.
	ID   string `json:"id,omitempty" yaml:"id,omitempty"`
	Size uint64 `json:"size,omitempty" yaml:"size,omitempty"`
}

// PreviewQuota is what the machine takes of one resource of the silo.
type PreviewQuota struct {
	Resource string `json:"resource" yaml:"resource"` // cpus, memory or storage
	Quota    uint64 `json:"quota" yaml:"quota"`
	Before   uint64 `json:"before" yaml:"before"`
	After    uint64 `json:"after" yaml:"after"`
	Fits     bool   `json:"fits" yaml:"fits"`
}

// localSchematics tells the ID of a schematic without registering it.
type localSchematics struct{}

// EnsureSchematic implements provision.FactoryClient.
func (localSchematics) EnsureSchematic(_ context.Context, s schematic.Schematic) (string, error) {
	return s.ID()
}

// Preview says what the daemon would make for a request of a class, from what is
// in the rack and in Omni now. It writes nothing anywhere. Its error is the line
// that the request would show.
func (c *Connection) Preview(ctx context.Context, opts PreviewOptions) (*Preview, error) {
	owner, err := c.Owner(ctx)
	if err != nil {
		return nil, err
	}

	find := factories{url: opts.FactoryURL, state: func() state.State { return c.state }}
	p := &Provisioner{
		State: func() state.State { return c.state }, Silo: opts.Rack, Owner: owner, previewing: true,
		Factory: func(ctx context.Context) (string, error) {
			base, _, err := find.find(ctx)

			return base, err
		},
	}

	request, notes, err := c.previewed(ctx, opts)
	if err != nil {
		return nil, err
	}

	plan, err := p.draft(ctx, zap.NewNop(), provision.NewContext[*Instance](request, nil, nil, provision.ConnectionParams{}, localSchematics{}, nil), request)
	if err != nil {
		return nil, err
	}

	out := describePlan(plan)
	out.Set, _ = request.Metadata().Labels().Get(omni.LabelMachineRequestSet)
	out.Notes = notes

	return out, c.complete(ctx, p, opts, plan, out)
}

// generatedID is an ID that Omni has made up for a request of a set.
var generatedID = regexp.MustCompile(`^(.+)-[bcdfghjklmnpqrstvwxz2456789]{6}$`)

// previewed is the request as it is in Omni, with the class to be tried, or one
// that is like those which Omni makes.
func (c *Connection) previewed(ctx context.Context, opts PreviewOptions) (*infra.MachineRequest, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	request := infra.NewMachineRequest(opts.Request)

	var notes []string

	found, err := safe.StateGetByID[*infra.MachineRequest](ctx, c.state, opts.Request)

	switch {
	case err == nil:
		if set, ok := found.Metadata().Labels().Get(omni.LabelMachineRequestSet); ok {
			request.Metadata().Labels().Set(omni.LabelMachineRequestSet, set)
		}

		request.TypedSpec().Value = found.TypedSpec().Value.CloneVT()
	case !state.IsNotFoundError(err):
		return nil, nil, c.Explain(err)
	default:
		if m := generatedID.FindStringSubmatch(opts.Request); m != nil {
			request.Metadata().Labels().Set(omni.LabelMachineRequestSet, m[1])

			notes = append(notes, fmt.Sprintf("there is no request %s in Omni: its machine set is taken to be %s, by its name", opts.Request, m[1]))
		}
	}

	spec := request.TypedSpec().Value
	spec.ProviderData, spec.TalosVersion = opts.Class, opts.Talos

	if err != nil || len(opts.KernelArgs) > 0 {
		spec.KernelArgs = slices.Clone(opts.KernelArgs)
	}

	return request, notes, nil
}

// describePlan is what stands in a plan.
func describePlan(plan *specs.Plan) *Preview {
	out := &Preview{
		Request: plan.GetRequestId(), Project: plan.GetProjectName(), Instance: plan.GetInstanceName(), CPUs: plan.GetCpus(), Memory: plan.GetMemoryBytes(),
	}

	for _, d := range append([]*specs.DiskPlan{plan.GetBootDisk()}, plan.GetDisks()...) {
		out.Disks = append(out.Disks, PreviewDisk{d.GetName(), d.GetType(), d.GetSizeBytes()})
	}

	for _, n := range plan.GetNics() {
		nic := PreviewNIC{Name: n.GetName(), VPC: n.GetVpcName(), Subnet: n.GetSubnetName(), IPConfig: n.GetIpConfig(), TransitIPs: n.GetTransitIps()}

		for _, a := range []string{n.GetIpv4(), n.GetIpv6()} {
			if a != "" {
				nic.Addresses = append(nic.Addresses, a)
			}
		}

		out.Interfaces = append(out.Interfaces, nic)
	}

	for _, e := range plan.GetExternalIps() {
		out.ExternalIPs = append(out.ExternalIPs, PreviewAddress{e.GetType(), e.GetIpVersion(), e.GetPoolId(), e.GetName(), e.GetFloatingIpId()})
	}

	for _, id := range plan.GetAntiAffinityGroupIds() {
		out.Groups = append(out.Groups, PreviewGroup{ID: id})
	}

	id := identity(plan.GetImage())
	out.Image = PreviewImage{Name: naming.Image(id), Talos: id.Talos, Schematic: id.Schematic, Factory: id.FactoryHost}

	return out
}

// complete adds what only a look at the rack tells.
func (c *Connection) complete(ctx context.Context, p *Provisioner, opts PreviewOptions, plan *specs.Plan, out *Preview) error {
	if g := plan.GetSetGroup(); g != nil {
		found, err := opts.Rack.ViewAntiAffinityGroup(ctx, plan.GetProjectId(), g.GetName())
		if err != nil && rack.ClassOf(err) != rack.ClassGone {
			return err
		}

		group := PreviewGroup{Name: g.GetName(), Policy: g.GetPolicy(), Made: err != nil}
		if err == nil {
			group.ID = found.Id
		}

		out.Groups = append(out.Groups, group)
	}

	if err := findImage(ctx, opts, plan, out); err != nil {
		return err
	}

	u, err := opts.Rack.Utilization(ctx)
	if err != nil {
		out.Notes = append(out.Notes, "the silo's quota can not be read: "+rack.Reason(err))

		return nil
	}

	need := needs(plan)
	whole, free := siloQuota(u)

	for _, q := range []struct {
		resource          string
		whole, free, need uint64
	}{{"cpus", whole.cpus, free.cpus, need.cpus}, {"memory", whole.memory, free.memory, need.memory}, {"storage", whole.storage, free.storage, need.storage}} {
		used := q.whole - q.free
		out.Quota = append(out.Quota, PreviewQuota{q.resource, q.whole, used, used + q.need, q.need <= q.free})
	}

	if err := p.quotaFor(ctx, plan); err != nil {
		out.Notes = append(out.Notes, err.Error())
	}

	return nil
}

// findImage looks for the image where the daemon would.
func findImage(ctx context.Context, opts PreviewOptions, plan *specs.Plan, out *Preview) error {
	scope := image.Scope(plan.GetImage().GetScope())
	if scope == "" {
		scope = opts.Scope
	}

	places := []string{"", plan.GetProjectId()}

	switch scope {
	case image.ScopeSilo:
		places = places[:1]
	case image.ScopeProject:
		places = places[1:]
	case image.ScopeAuto:
	}

	for _, place := range places {
		images, err := opts.Rack.ListImages(ctx, place)
		if place == "" && rack.ClassOf(err) == rack.ClassForbidden {
			out.Notes = append(out.Notes, "the token may not list the silo's images")

			continue
		}

		if err != nil {
			return err
		}

		at := slices.IndexFunc(images, func(i oxide.Image) bool {
			mark, ok := naming.Parse(i.Description)

			return ok && mark.IsImage(identity(plan.GetImage()))
		})
		if at >= 0 {
			out.Image.ID, out.Image.Size = images[at].Id, uint64(images[at].Size)

			break
		}
	}

	if out.Image.Size > plan.GetBootDisk().GetSizeBytes() {
		out.Notes = append(out.Notes, fmt.Sprintf("boot_disk_size: %s is less than the %s of the image",
			inGiB(plan.GetBootDisk().GetSizeBytes()), inGiB(out.Image.Size)))
	}

	if out.Image.ID == "" {
		out.Notes = append(out.Notes, "the image would be uploaded first, which takes twice its size of the storage quota for a while; "+
			"a factory that adds to schematics gives it another ID")
	}

	return nil
}

// Lines are the preview for people, each a title and a text.
func (p *Preview) Lines() [][2]string {
	lines := [][2]string{
		{"REQUEST", p.Request}, {"MACHINE SET", or(p.Set, "none")}, {"PROJECT", p.Project}, {"INSTANCE", p.Instance},
		{"SIZE", fmt.Sprintf("%s, %s of memory", vCPUs(uint64(p.CPUs)), inGiB(p.Memory))},
	}
	add := func(title, format string, args ...any) {
		lines = append(lines, [2]string{title, fmt.Sprintf(format, args...)})
	}

	for _, d := range p.Disks {
		add("DISK", "%s, %s, %s", d.Name, inGiB(d.Size), d.Type)
	}

	for _, n := range p.Interfaces {
		add("INTERFACE", "%s, VPC %s, subnet %s, %s, address %s", n.Name, n.VPC, n.Subnet, n.IPConfig, or(strings.Join(n.Addresses, " and "), "by the rack"))
	}

	for _, e := range p.ExternalIPs {
		add("EXTERNAL IP", "%s", strings.Join(strings.Fields(strings.Join([]string{e.Type, e.IPVersion, e.FloatingIP, e.ID}, " ")), ", "))
	}

	for _, g := range p.Groups {
		switch {
		case g.Made:
			add("GROUP", "%s, policy %s, would be made", g.Name, g.Policy)
		default:
			add("GROUP", "%s", strings.TrimSpace(g.Name+" "+g.ID))
		}
	}

	add("IMAGE", "%s: %s", p.Image.Name, or(strings.TrimSpace(p.Image.ID), "not there, would be uploaded"))
	add("SCHEMATIC", "%s", p.Image.Schematic)

	for _, q := range p.Quota {
		show := inGiB
		if q.Resource == "cpus" {
			show = vCPUs
		}

		add("QUOTA "+strings.ToUpper(q.Resource), "%s of %s now, %s then", show(q.Before), show(q.Quota), show(q.After))
	}

	for _, n := range p.Notes {
		add("NOTE", "%s", n)
	}

	return lines
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}

	return text
}
