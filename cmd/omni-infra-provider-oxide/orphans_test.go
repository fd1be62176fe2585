package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	stored "github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// ask runs the program once and answers what it said.
func ask(t *testing.T, env map[string]string, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}

	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}

	var out, errs bytes.Buffer

	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs

	err := cmd.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), errs.String(), e.ExitCode()
	}

	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}

	return out.String(), errs.String(), 0
}

// orphanage is a site with an owner, foreign objects, and what a test adds.
type orphanage struct {
	*crashRun

	env map[string]string
}

func newOrphanage(t *testing.T) *orphanage {
	t.Helper()

	if err := provider.Bind(crashProvider); err != nil {
		t.Fatal(err)
	}

	o := &orphanage{crashRun: &crashRun{place: newPlace(t, site.Config{})}}
	o.env = o.place.env(crashProvider)
	o.owner = o.makeOwner()
	o.foreign = makeForeign(o.place, o.owner)

	return o
}

func (o *orphanage) mark(request string, kind naming.Kind) string {
	return naming.Mark{
		Owner: o.owner, Provider: crashProvider, Kind: kind, Key: naming.RequestKey(request), Run: "0123abcd",
	}.Describe("Of machine " + request + ".")
}

func (o *orphanage) disk(name, description string, source oxide.DiskSource) string {
	return must(o.Operator.Rack().DiskCreate(o.t.Context(), oxide.DiskCreateParams{
		Project: oxide.NameOrId(site.Project), Body: &oxide.DiskCreate{
			Name: oxide.Name(name), Description: description, Size: 1 << 30,
			DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{DiskSource: source}},
		},
	}))(o.t).Id
}

var blankDisk = oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: 512}}

// instance makes an instance with one disk of ours and one of a stranger's, and
// answers the ID of the instance and of its own disk.
func (o *orphanage) instance(request string, start bool) (instance, own string) {
	own = o.disk(naming.Disk("boot", request), o.mark(request, naming.KindBoot), blankDisk)
	o.disk("strangers-"+request, "attached by hand", blankDisk)

	made := must(o.Operator.Rack().InstanceCreate(o.t.Context(), oxide.InstanceCreateParams{
		Project: oxide.NameOrId(site.Project), Body: &oxide.InstanceCreate{
			Name: oxide.Name(request), Hostname: oxide.Hostname(request), Description: o.mark(request, naming.KindInstance),
			Ncpus: 1, Memory: 1 << 30, Start: &start,
			NetworkInterfaces: oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}},
			Disks: []oxide.InstanceDiskAttachment{
				{Value: oxide.InstanceDiskAttachmentAttach{Name: oxide.Name(naming.Disk("boot", request))}},
				{Value: oxide.InstanceDiskAttachmentAttach{Name: oxide.Name("strangers-" + request)}},
			},
		},
	}))(o.t)

	return made.Id, own
}

// request makes a machine request that nobody works on.
func (o *orphanage) request(id string) {
	r := infra.NewMachineRequest(id)
	r.Metadata().Labels().Set(omni.LabelInfraProviderID, crashProvider)

	if err := o.Omni.AdminState().Create(o.t.Context(), r); err != nil {
		o.t.Fatal(err)
	}
}

// recordRun stores that an import run lives and works in the project.
func (o *orphanage) recordRun(id string) {
	var run provider.Run

	kind := run.ResourceDefinition()
	*run.Metadata() = resource.NewMetadata(kind.DefaultNamespace, kind.Type, id, resource.VersionUndefined)
	run.TypedSpec().Value = &stored.RunSpec{Sequence: 1}

	if err := o.Omni.AdminState().Create(o.t.Context(), &run); err != nil {
		o.t.Fatal(err)
	}
}

// leaves makes one orphan of each kind and answers their IDs and names.
func (o *orphanage) leaves() map[string]string {
	ctx, rack := o.t.Context(), o.Operator.Rack()
	all := map[string]string{}

	instance, disk := o.instance("gone-1", true)
	all[instance], all[disk] = "gone-1", naming.Disk("boot", "gone-1")
	all[o.disk("data0-left", o.mark("Gone_2", naming.KindData), blankDisk)] = "data0-left"

	importing := oxide.DiskSource{Value: oxide.DiskSourceImportingBlocks{BlockSize: 512}}
	all[o.disk("oipo-scratch-abcdefghij-0badcafe", o.mark("image", naming.KindScratch), importing)] = "oipo-scratch-abcdefghij-0badcafe"

	address := must(rack.FloatingIpCreate(ctx, oxide.FloatingIpCreateParams{Project: oxide.NameOrId(site.Project), Body: &oxide.FloatingIpCreate{
		Name: "address", Description: o.mark("gone-1", naming.KindIP),
		AddressAllocator: oxide.AddressAllocator{Value: oxide.AddressAllocatorAuto{
			PoolSelector: oxide.PoolSelector{Value: oxide.PoolSelectorAuto{IpVersion: oxide.IpVersionV4}},
		}},
	}}))(o.t)
	all[address.Id] = "address"

	group := must(rack.AntiAffinityGroupCreate(ctx, oxide.AntiAffinityGroupCreateParams{
		Project: oxide.NameOrId(site.Project), Body: &oxide.AntiAffinityGroupCreate{
			Name: "apart", Description: o.mark("gone-set", naming.KindGroup), Policy: oxide.AffinityPolicyAllow, FailureDomain: oxide.FailureDomainSled,
		},
	}))(o.t)
	all[group.Id] = "apart"

	return all
}

// listed runs `orphans list` and answers IDs and names.
func (o *orphanage) listed() map[string]string {
	o.t.Helper()

	out, errs, code := ask(o.t, o.env, "", "orphans", "list", "--output", "json")
	if code != 0 {
		o.t.Fatalf("exit code %d: %s", code, errs)
	}

	var report struct {
		Orphans []struct{ ID, Name, Reason string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		o.t.Fatalf("%v in %s", err, out)
	}

	all := map[string]string{}

	for _, x := range report.Orphans {
		if x.Reason == "" {
			o.t.Errorf("%s is an orphan without a reason", x.Name)
		}

		all[x.ID] = x.Name
	}

	return all
}

// Invariant: nothing foreign is listed or touched. In a project with objects of
// strangers, other providers and other owners, with marks that can not be parsed,
// of living requests and of living uploads, `orphans` lists exactly the orphans,
// and deletes exactly those, a stranger's disk on an orphaned instance excepted.
func TestOrphansAreListedAndDeletedExactly(t *testing.T) {
	t.Parallel()

	o := newOrphanage(t)
	o.request("live-1")
	o.instance("live-1", false)
	o.recordRun("0123abcf")
	o.disk("oipo-scratch-abcdefghij-0ddba110", strings.Replace(o.mark("image", naming.KindScratch), "run=0123abcd", "run=0123abcf", 1),
		oxide.DiskSource{Value: oxide.DiskSourceImportingBlocks{BlockSize: 512}})

	before := describe(t, o.inventory())
	want := o.leaves()

	if got := o.listed(); !maps.Equal(got, want) {
		t.Fatalf("listed %v, want %v", got, want)
	}

	table, _, code := ask(t, o.env, "", "orphans", "list")
	for _, part := range []string{"there is no request gone-1 in Omni", "there is no request Gone_2 in Omni", "no record in Omni"} {
		if !strings.Contains(table, part) || code != 0 {
			t.Errorf("exit code %d; the table has no %q:\n%s", code, part, table)
		}
	}

	if _, errs, code := ask(t, o.env, "5\n", "orphans", "delete"); code != exitRefused || !strings.Contains(errs, "Type 6") {
		t.Errorf("a wrong answer: exit code %d, %s", code, errs)
	}

	if got := o.listed(); !maps.Equal(got, want) {
		t.Fatalf("after a wrong answer %v is left", got)
	}

	out, errs, code := ask(t, o.env, "6\n", "orphans", "delete")
	if code != 0 || !strings.Contains(out, "6 of 6 removed.") {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}

	if got := o.listed(); len(got) != 0 {
		t.Errorf("left %v", got)
	}

	after := describe(t, o.inventory())
	for id, name := range want {
		if after[id] != "" {
			t.Errorf("%s is still there", name)
		}
	}

	before.check(t, o.inventory())

	if !slices.ContainsFunc(o.inventory().Disks, func(d oxide.Disk) bool { return d.Name == "strangers-gone-1" }) {
		t.Error("the disk that somebody attached is gone")
	}

	for _, name := range want {
		if name != "apart" && name != "oipo-scratch-abcdefghij-0badcafe" && !strings.Contains(errs, name) {
			t.Errorf("the log does not tell of %s", name)
		}
	}
}

// Invariant: with an Omni that lists nothing, nothing is deleted unless a person
// names the number of instances.
func TestNothingIsDeletedWhileOmniListsNothing(t *testing.T) {
	t.Parallel()

	o := newOrphanage(t)
	o.instance("gone-1", false)
	o.instance("gone-2", false)

	before := describe(t, o.inventory())

	for _, args := range [][]string{{"--yes"}, {"--yes", "--omni-lists-nothing=1"}, {"--yes", "--output=json"}} {
		out, errs, code := ask(t, o.env, "", append([]string{"orphans", "delete"}, args...)...)
		if code != exitRefused || !strings.Contains(errs, "--omni-lists-nothing=2") || !strings.Contains(out, "restored from a backup") {
			t.Errorf("%q: exit code %d\n%s\n%s", args, code, out, errs)
		}
	}

	before.check(t, o.inventory())

	if out, errs, code := ask(t, o.env, "", "orphans", "delete", "--yes", "--omni-lists-nothing=2"); code != 0 {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}

	if left := o.ours(); len(left.Instances) != 0 || len(left.Disks) != 2 {
		t.Errorf("left:\n%s", left)
	}

	o.request("live")

	if _, errs, code := ask(t, o.env, "", "orphans", "delete", "--yes", "--omni-lists-nothing=2"); code != 0 {
		t.Errorf("nothing to do: exit code %d, %s", code, errs)
	}
}
