package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// classSubnets and classGroups are what generated classes name; the rack of
// the test has them.
const (
	classSubnets = 9
	classGroups  = 17
)

// onlyTheRackKnows are refusals of classes that no check beforehand can foresee.
var onlyTheRackKnows = []string{
	"jumbo frames are not enabled on this rack", "its pool is of IP version", "of the primary interface's ip_config",
}

// anyClass is a class of fields that are near their limits, on both sides, or
// wrong in other ways. A field joins here when the daemon carries it out.
func anyClass() *rapid.Generator[string] {
	fields := []*rapid.Generator[string]{
		rapid.SampledFrom([]string{"cpus: 1", "cpus: 254", "cpus: 255", "cpus: 0", "cpus: 2.0", "cpus: 1e2", "vcpus: 254", "cpus: ''"}),
		rapid.SampledFrom([]string{"memory: 1", "memory: 1536", "memory: 1537", "memory: 8589934592", "memory: 0x10", "memory: -1"}),
		rapid.SampledFrom([]string{
			"boot_disk_size: 1", "boot_disk_size: 1023", "boot_disk_size: 1024", "boot_disk_size: .nan", "disk_size: 20", "disk_size: 9999",
		}),
		rapid.Map(rapid.SliceOfN(anyDisk(), 0, 12), listed("disks")),
		rapid.Map(rapid.SliceOfN(anyInterface(), 0, 9), listed("network_interfaces")),
		rapid.SampledFrom([]string{"auto_restart_policy: never", "auto_restart_policy: best_effort", "auto_restart_policy: ~", "subnet: s1", "vpc: default"}),
		rapid.SampledFrom([]string{"cpu_platform: amd_milan", "cpu_platform: amd_turin", "cpu_platform: amd_turin_v2", "cpu_platform: amd_turinv2", "cpu_platform: x"}),
		rapid.Map(rapid.IntRange(0, classGroups), func(n int) string {
			groups := make([]string, n)
			for i := range groups {
				groups[i] = fmt.Sprintf("g%d", i)
			}

			return "anti_affinity_groups: [" + strings.Join(groups, ", ") + "]"
		}),
		rapid.SampledFrom([]string{"enable_jumbo_frames: false", "enable_jumbo_frames: true", "hostname: platform", "on_stopped: leave"}),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
			"{}", "{ip_version: v6}", "{pool: public}", "{pool: six}", "{type: floating}", "{type: floating, ip_version: v6}", "{type: floating, pool: public}",
			"{type: floating, floating_ips: [gate]}", "{type: floating, floating_ips: [gate-2, gate-3]}", "{floating_ips: [gate]}",
		}), 0, 33), listed("external_ips")),
		rapid.SampledFrom([]string{"machine_set_group: allow", "machine_set_group: fail", "machine_set_group: none", "machine_set_group: always"}),
		rapid.SampledFrom([]string{
			"description: a", "description: " + strings.Repeat("x", 120), "description: " + strings.Repeat("x", 121), "description: 'a [b]'",
			"hostname: pinned", "topology: {zone: a}", "node_labels: [a=b]", "extensions: [a/b]", "kernel_args: [a]", "kernel_args: ['a b']",
		}),
	}

	return rapid.Custom(func(t *rapid.T) string {
		text := "project: demo\n"

		for i, f := range fields {
			if rapid.IntRange(0, 2).Draw(t, fmt.Sprintf("field %d", i)) == 0 {
				text += f.Draw(t, "value") + "\n"
			}
		}

		return text
	})
}

func listed(key string) func([]string) string {
	return func(entries []string) string { return key + ": [" + strings.Join(entries, ", ") + "]" }
}

func anyDisk() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{
		"{size: 1}", "{size: 1, type: distributed}", "{size: 1023}", "{size: 1, type: local}", "{size: 2000, type: local}", "{size: 64, name: ''}",
	})
}

func anyInterface() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		subnet := rapid.IntRange(0, classSubnets-1).Draw(t, "subnet")

		return fmt.Sprintf("{ip_config: %s, subnet_name: s%d%s%s}",
			rapid.SampledFrom([]string{"v4", "v6", "dual_stack"}).Draw(t, "config"), subnet,
			rapid.SampledFrom([]string{
				"", "", ", addresses: []", fmt.Sprintf(", addresses: [10.%d.0.5]", subnet), fmt.Sprintf(", addresses: [10.%d.3.254, 10.%d.0.9]", subnet, subnet),
			}).Draw(t, "addresses"),
			rapid.SampledFrom([]string{
				"", "", ", transit_ips: []", ", transit_ips: [10.99.0.0/16]", ", transit_ips: ['fd99::/64', 10.99.0.0/16]", ", transit_ips: [10.99.0.1/16]",
			}).Draw(t, "transit"))
	})
}

// Invariant: whatever passes Omni's form and the daemon's check the rack takes,
// but for what only the rack can know: nobody waits for an upload to learn that
// the class is wrong.
func TestNoClassThatPassesIsRefusedByTheRack(t *testing.T) {
	t.Parallel()

	schema := formSchema(t)

	bubble(t, func(t *testing.T, b *bench) {
		b.furnish()

		var passed, refused, made int

		// Not t itself: rapid would ask for its deadline, which a bubble has not.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			text := anyClass().Draw(rt, "class")

			class, err := machineclass.Parse(text)
			if err == nil {
				err = class.NotYet()
			}

			if err != nil || !formTakes(schema, text) {
				refused++

				return
			}

			passed++

			if err := b.makeOf(class, fmt.Sprintf("fuzz-%d", passed)); err != nil {
				rt.Fatalf("the rack refuses:\n%s%v", text, err)
			}

			made++
		})

		if made < 10 || refused < 10 {
			t.Errorf("%d classes passed, %d were refused: too few to say anything", passed, refused)
		}
	}, bothVersions, func(s *setup) {
		s.rack.RackStorage = 1 << 60
		s.rack.Quota = simrack.Quota{CPUs: 1 << 20, Memory: 1 << 50, Storage: 1 << 55}
	})
}

// furnish makes what the generated classes name.
func (b *bench) furnish() {
	b.t.Helper()

	client, err := oxide.NewClient(oxide.WithHost("http://rack.test"), oxide.WithToken(simrack.DefaultToken),
		oxide.WithHTTPClient(&http.Client{Transport: b.transport}))
	b.ok(err)

	project := oxide.NameOrId(b.project.Id)

	for i := range classSubnets {
		_, err := client.VpcSubnetCreate(b.t.Context(), oxide.VpcSubnetCreateParams{
			Project: project, Vpc: "default",
			Body: &oxide.VpcSubnetCreate{Name: oxide.Name(fmt.Sprintf("s%d", i)), Ipv4Block: oxide.Ipv4Net(fmt.Sprintf("10.%d.0.0/22", i))},
		})
		b.ok(err)
	}

	for _, name := range []string{"gate", "gate-2", "gate-3"} {
		b.floating(name, "public")
	}

	for i := range classGroups {
		_, err := client.AntiAffinityGroupCreate(b.t.Context(), oxide.AntiAffinityGroupCreateParams{
			Project: project,
			Body: &oxide.AntiAffinityGroupCreate{
				Name: oxide.Name(fmt.Sprintf("g%d", i)), Policy: oxide.AffinityPolicyAllow, FailureDomain: oxide.FailureDomainSled,
			},
		})
		b.ok(err)
	}
}

// makeOf makes an instance of a class as the daemon does, from the plan to the
// answer of the rack, and removes it again. The error is a refusal.
func (b *bench) makeOf(class machineclass.Class, request string) error {
	b.t.Helper()

	spec := &specs.InstanceSpec{
		Plan: &specs.Plan{
			Format: planFormat, RequestId: request, Owner: b.owner, InstanceName: naming.Instance(request),
			Image: &specs.ImagePlan{TalosVersion: "1.13.5", Architecture: architecture},
		},
		Image: &specs.ImageRef{Id: b.talosImage.Id},
	}

	shape(spec.GetPlan(), class)

	err := b.work.resolve(b.t.Context(), spec.GetPlan(), class)
	if err == nil {
		err = b.work.shareOut(b.t.Context(), infra.NewMachineRequest(request), spec.GetPlan(), class)
	}

	if err != nil && onlyRack(err.Error()) {
		return nil
	}

	if err != nil {
		return err
	}

	if err := b.work.takeSetGroup(spec.GetPlan(), class, "fuzz", nil); err != nil {
		return err
	}

	for spec.GetInstanceId() == "" {
		err := b.work.Machines.Create(b.t.Context(), spec, "apiVersion: v1alpha1\n")

		wait, waits := errors.AsType[*instance.Wait](err)

		switch {
		case err == nil:
		case onlyRack(err.Error()):
			return nil
		case waits && wait.Cause == nil:
			b.pass(wait.After)
		default:
			return err
		}
	}

	made, err := b.rack.ViewInstance(b.t.Context(), spec.GetInstanceId())
	b.ok(err)

	if int(made.Ncpus) != class.CPUs || int64(made.Memory) != int64(class.Memory)*machineclass.GiB {
		return fmt.Errorf("the instance has %d vCPUs and %d bytes", made.Ncpus, made.Memory)
	}

	b.ok(b.rack.DeleteInstance(b.t.Context(), made.Id))

	disks, err := b.rack.ListDisks(b.t.Context(), b.project.Id)
	b.ok(err)

	if want := 1 + len(class.Disks); len(disks) != want {
		return fmt.Errorf("%d disks, want %d", len(disks), want)
	}

	for i := range disks {
		b.ok(b.rack.DeleteDisk(b.t.Context(), disks[i].Id))
	}

	for _, f := range spec.GetFloatingIps() {
		b.ok(b.rack.DeleteFloatingIP(b.t.Context(), f.GetId()))
	}

	return nil
}

func onlyRack(reason string) bool {
	for _, known := range onlyTheRackKnows {
		if strings.Contains(reason, known) {
			return true
		}
	}

	return false
}

// formSchema is the schema as Omni reads it.
func formSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()

	document, err := jsonschema.UnmarshalJSON(strings.NewReader(machineclass.Schema()))
	if err != nil {
		t.Fatal(err)
	}

	compiler := jsonschema.NewCompiler()
	if err = compiler.AddResource("class.json", document); err != nil {
		t.Fatal(err)
	}

	schema, err := compiler.Compile("class.json")
	if err != nil {
		t.Fatal(err)
	}

	return schema
}

func formTakes(schema *jsonschema.Schema, text string) bool {
	var value any
	if yaml.Unmarshal([]byte(strings.ReplaceAll(text, ".nan", "null")), &value) != nil {
		return false
	}

	encoded, err := json.Marshal(value)
	if err != nil {
		return false
	}

	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(encoded)))

	return err == nil && schema.Validate(document) == nil
}

// Invariant: nobody gets a machine that is not what the class asks for: what is
// not carried out is refused, by name, and nothing is made.
func TestWhatIsNotCarriedOutIsRefused(t *testing.T) {
	t.Parallel()

	const text = `project: demo
description: a
disks: [{size: 1, name: a}]
network_interfaces: [{addresses: [172.30.0.9], transit_ips: [10.0.0.0/8]}]
external_ips: [{}]
machine_set_group: allow
on_stopped: start
hostname: pinned
topology: {zone: a}
node_labels: [a=b]
extensions: [siderolabs/a]
kernel_args: [a]
image_scope: project
`

	parsed, err := machineclass.Parse(text)
	if err != nil {
		t.Fatal(err)
	}

	pending := parsed.NotYet()
	if pending == nil {
		return // all of it is
	}

	bubble(t, func(_ *testing.T, b *bench) {
		b.start()
		b.ask(theRequest, class(text))
		b.untilStage(theRequest, stageFailed)

		mistakes, _ := errors.AsType[machineclass.Mistakes](pending)
		if got := b.status(theRequest).GetError(); !strings.HasPrefix(got, "machine class: "+mistakes[0].String()) {
			t.Errorf("the request says %q", got)
		}

		b.wantLeft(0, 0)
	})
}

// Invariant: Omni takes the example once the provider has introduced itself, and
// tells a mistake by its field before anything is asked of the daemon.
func TestOmniTakesTheExampleAndRefusesMistakes(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.start()
		b.until("the provider to introduce itself", func() bool {
			status, err := safe.StateGetByID[*infra.ProviderStatus](t.Context(), b.admin, testID)

			return err == nil && status.TypedSpec().Value.GetSchema() != ""
		})

		example := machineclass.Example("large", testID)
		b.ok(b.omni.ApplyYAML(t.Context(), []byte(example)))

		for field, wrong := range map[string]string{
			"cpus":    strings.Replace(example, "cpus: 1\n", "cpus: 255\n", 1),
			"project": strings.Replace(example, "project: talos\n", "project: Talos\n", 1),
			"ram":     strings.Replace(example, "memory: 4\n", "ram: 4\n", 1),
		} {
			if err := b.omni.ApplyYAML(t.Context(), []byte(wrong)); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: %v", field, err)
			}
		}
	})
}
