package provider

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/proto"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

// Invariant: the user can read why. What a user must mend in a class stands in
// the request's error, in one line with the field's name, and nothing is made.
func TestAClassThatIsWrongIsRefusedWithWhatToMend(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct{ name, class, want string }{
		{"project", "project: nowhere", `project: "nowhere" is not in the silo, or the daemon's token has no role in it`},
		{
			"vpc", "project: demo\nnetwork_interfaces: [{ip_config: v4, vpc_name: nope, subnet_name: default}]",
			`network_interfaces[0].vpc_name: project "demo" has no VPC "nope"`,
		},
		{
			"subnet", "project: demo\nnetwork_interfaces: [{ip_config: v4, vpc_name: default, subnet_name: default}, {ip_config: v4, vpc_name: default, subnet_name: nope}]",
			`network_interfaces[1].subnet_name: VPC "default" has no subnet "nope"`,
		},
		{"group", "project: demo\nanti_affinity_groups: [spread]", `anti_affinity_groups[0]: project "demo" has no group "spread"`},
		{"unknown key", "project: demo\nmemroy: 8", `machine class: memroy: unknown key, the nearest known is memory`},
		{
			"three at once", "project: demo\ncpus: 300\nmemory: 2000\nboot_disk_size: 1024",
			`machine class: cpus: 300 is over the limit of 254; memory: 2000 is over the limit of 1536 GiB; boot_disk_size: 1024 is over the limit of 1023 GiB`,
		},
		{"no class", "", `machine class: project: is required`},
		{"no YAML", "project: [", `machine class: not YAML`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(_ *testing.T, b *bench) {
				b.start()
				b.ask(theRequest, class(tc.class))
				b.untilStage(theRequest, stageFailed)
				b.wantRefused(tc.want)
			})
		})
	}
}

// wantRefused demands a failure in one line, with nothing made, and a teardown
// that ends.
func (b *bench) wantRefused(want string) {
	b.t.Helper()

	got := b.status(theRequest).GetError()
	if !strings.HasPrefix(got, want) || strings.Contains(got, "\n") || len([]rune(got)) > maxText {
		b.t.Errorf("the request says\n%q, want\n%q", got, want)
	}

	if strings.HasPrefix(want, "machine class: not YAML") == (got == want) {
		b.t.Errorf("the request says\n%q, want exactly\n%q", got, want)
	}

	if asked, _ := b.images.seen(); len(asked) != 0 {
		b.t.Errorf("images were asked for: %+v", asked)
	}

	for _, c := range b.sim.Calls()[b.callsBefore:] {
		if changes(c.Operation) {
			b.t.Errorf("the rack was asked for %s", c.Operation)
		}
	}

	b.remove(theRequest)
	b.untilReleased(theRequest)
}

// Talos before 1.12.3 can not read Oxide's config disk: such a machine would
// boot and never join.
func TestATalosVersionThatCanNotJoinIsRefused(t *testing.T) {
	t.Parallel()

	for version, want := range map[string]string{
		"1.12.2":        "Talos 1.12.2 can not read the config disk of an Oxide instance and would never join: use Talos 1.12.3 or later",
		"v1.12.2":       "Talos 1.12.2 can not read the config disk of an Oxide instance and would never join: use Talos 1.12.3 or later",
		"1.12.3-beta.1": "Talos 1.12.3-beta.1 can not read the config disk of an Oxide instance and would never join: use Talos 1.12.3 or later",
		"1.9.0":         "Talos 1.9.0 can not read the config disk of an Oxide instance and would never join: use Talos 1.12.3 or later",
		"latest":        `Talos version "latest" is not of the form 1.13.5: No Major.Minor.Patch elements found`,
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(_ *testing.T, b *bench) {
				b.start()
				b.ask(theRequest, func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = version })
				b.untilStage(theRequest, stageFailed)
				b.wantRefused(want)
			})
		})
	}
}

// A pre-release of a later minor is made, with one warning; a release with none.
func TestAPreReleaseIsMadeWithOneWarning(t *testing.T) {
	t.Parallel()

	for version, warnings := range map[string]int{"1.14.0-beta.1": 1, "v1.13.5": 0, "1.12.3": 0} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				// Retries and waits run the plan again, before it is stored and after.
				b.schematics.set("", errors.New("not now"))
				b.images.answers(func(n int, _ image.Want) (image.Status, error) {
					switch {
					case n < 3:
						return image.Status{Reason: "uploading", RetryIn: time.Second}, nil
					case n < 5:
						return image.Status{}, &image.MendError{Reason: "no such image"}
					default:
						return b.ready(b.talosImage), nil
					}
				})
				b.start()
				b.ask(theRequest, func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = version })
				b.pass(2 * time.Minute)
				b.schematics.set("", nil)
				b.untilStage(theRequest, stageProvisioned)

				var got []string

				for _, e := range b.logged(zapcore.WarnLevel) {
					if strings.Contains(e.Message, "pre-release") {
						got = append(got, e.Message)
					}
				}

				if len(got) != warnings {
					t.Errorf("warned %q", got)
				}

				if asked, _ := b.images.seen(); asked[0].Identity.Talos != strings.TrimPrefix(version, "v") {
					t.Errorf("asked for %+v", asked[0])
				}
			})
		})
	}
}

// The plan holds everything that later steps need, resolved to what exists.
func TestThePlanHoldsWhatTheClassAsksFor(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		// The image takes for ever: nothing but the plan is made.
		b.images.answers(func(int, image.Want) (image.Status, error) {
			return image.Status{Reason: "uploading", RetryIn: time.Minute}, nil
		})
		b.start()

		r := b.ask(theRequest, class(strings.Join([]string{
			"project: " + b.project.Id, "cpus: 4", "memory: 16", "boot_disk_size: 20",
			"disks: [{type: local, size: 100, name: etcd}, {type: distributed, size: 7}]", "on_stopped: start",
			"auto_restart_policy: never", "cpu_platform: amd_turin", "enable_jumbo_frames: true",
		}, "\n")))
		b.until("the plan to be stored", func() bool {
			res := b.stored(theRequest)

			return res != nil && res.TypedSpec().Value.GetPlan() != nil
		})

		got := proto.CloneOf(b.stored(theRequest).TypedSpec().Value.GetPlan())
		if got.GetPlannedAt() == nil || len(got.GetImage().GetSchematicId()) != 64 {
			t.Errorf("planned %v", got)
		}

		if len(got.GetSiloId()) != 36 {
			t.Errorf("planned in silo %q", got.GetSiloId())
		}

		if n := got.GetNics()[0]; len(n.GetVpcId()) != 36 || len(n.GetSubnetId()) != 36 {
			t.Errorf("planned network interface %v", n)
		}

		got.PlannedAt, got.Image.SchematicId, got.Nics[0].VpcId, got.Nics[0].SubnetId = nil, "", "", ""

		want := &specs.Plan{
			Format: 1, RequestHash: requestHash(r.TypedSpec().Value), RequestId: theRequest, Owner: b.owner,
			SiloId: got.GetSiloId(), ProjectId: b.project.Id, ProjectName: "demo", InstanceName: theRequest, Cpus: 4, MemoryBytes: 16 * gib,
			BootDisk: &specs.DiskPlan{Name: "boot-j4ulfhvksu-talos-workers-abcdef", SizeBytes: 20 * gib, Type: "distributed"},
			Disks: []*specs.DiskPlan{
				{Name: "etcd-knbic46ypc-talos-workers-abcdef", SizeBytes: 100 * gib, Type: "local"},
				{Name: "data1-f3edak5y6t-talos-workers-abcdef", SizeBytes: 7 * gib, Type: "distributed", BlockSize: 512},
			},
			Nics:              []*specs.NicPlan{{Name: "net0", VpcName: "default", SubnetName: "default", IpConfig: "v4"}},
			AutoRestartPolicy: "never", CpuPlatform: "amd_turin", EnableJumboFrames: true, OnStopped: "start",
			Image: &specs.ImagePlan{TalosVersion: "1.13.5", Architecture: "amd64", FactoryHost: "factory.test"},
		}

		if !proto.Equal(got, want) {
			t.Errorf("planned\n%v, want\n%v", got, want)
		}

		asked, _ := b.images.seen()
		if len(asked) == 0 || asked[0].ProjectID != b.project.Id || asked[0].DiskBytes != 20*gib || asked[0].Identity.FactoryHost != "factory.test" {
			t.Errorf("asked for the image %+v", asked)
		}
	})
}

// Plan first: a plan that exists is carried out as it is, and costs the rack no
// call.
func TestAStoredPlanIsKept(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.images.answers(func(int, image.Want) (image.Status, error) {
			return image.Status{}, &image.MendError{Reason: "no such image"}
		})

		first := b.start()

		b.ask(theRequest)
		b.untilStage(theRequest, stageFailed)
		b.ok(first.stop())

		// By hand, as an older version would have planned it.
		spec := proto.CloneOf(b.stored(theRequest).TypedSpec().Value)
		spec.Plan.Cpus, spec.Plan.InstanceName = 3, "named-by-an-older-version"
		b.store(theRequest, stepPlan, spec)

		looks := []string{"project_view", "vpc_view", "vpc_subnet_view"}
		before := b.counts(looks)
		registered := b.schematics.count()

		b.start()
		b.pass(5 * time.Minute)

		if after := b.counts(looks); !slices.Equal(after, before) || b.schematics.count() != registered {
			t.Errorf("five minutes of retries made calls %v: %v before, %v after", looks, before, after)
		}

		b.images.answers(func(int, image.Want) (image.Status, error) { return b.ready(b.talosImage), nil })
		b.untilStage(theRequest, stageProvisioned)

		i, err := b.rack.ViewInstanceByName(t.Context(), b.project.Id, "named-by-an-older-version")
		b.ok(err)

		if i.Ncpus != 3 {
			t.Errorf("the instance has %d CPUs", i.Ncpus)
		}
	})
}

func (b *bench) counts(operations []string) []int {
	var out []int
	for _, op := range operations {
		out = append(out, b.sim.CallCount(op))
	}

	return out
}

// A plan is only ever carried out for the request that it was made for.
func TestThePlanOfAnotherRequestIsForAPersonToMend(t *testing.T) {
	t.Parallel()

	const want = "the stored plan is that of another request: delete this request, Omni makes a new one"

	for name, change := range map[string]func(*specs.Plan){
		"hash": func(p *specs.Plan) { p.RequestHash = "1:00" },
		"id":   func(p *specs.Plan) { p.RequestId = "talos-workers-bcdefg" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(_ *testing.T, b *bench) {
				r := b.ask(theRequest)
				plan := &specs.Plan{
					RequestHash: requestHash(r.TypedSpec().Value), RequestId: theRequest, ProjectId: b.project.Id, ProjectName: "demo",
					InstanceName: theRequest,
				}
				change(plan)
				b.store(theRequest, stepPlan, &specs.InstanceSpec{Plan: plan})

				b.start()
				b.untilStage(theRequest, stageFailed)
				b.wantRefused(want)
			})
		})
	}
}

// Stored formats are promises: a release that computed another hash would give
// up every machine that is just being made.
func TestTheRequestHashIsStable(t *testing.T) {
	t.Parallel()

	full := func() *omnispecs.MachineRequestSpec {
		return &omnispecs.MachineRequestSpec{
			TalosVersion: "1.13.5", ProviderData: "project: demo\n",
			Overlay:    &omnispecs.Overlay{Name: "o", Image: "i"},
			Extensions: []string{"siderolabs/a", "siderolabs/b"},
			KernelArgs: []string{"console=ttyS0", "a=b"},
			MetaValues: []*omnispecs.MetaValue{{Key: 12, Value: "x"}},
			GrpcTunnel: omnispecs.GrpcTunnelMode_ENABLED,
		}
	}

	const (
		goldenFull  = "1:f75c65b3f5b701aad0cb49e7ba10523c170717fe35e5c3cbd740b6c8f2adaf8e"
		goldenEmpty = "1:3f29e4707d99927e1e696b298841dfc42d018f80ebe0edd5622027d30b999b35"
	)

	if got := requestHash(full()); got != goldenFull {
		t.Errorf("the hash is now %s", got)
	}

	if got := requestHash(&omnispecs.MachineRequestSpec{}); got != goldenEmpty {
		t.Errorf("the hash of an empty request is now %s", got)
	}

	sorted := full()
	slices.Sort(sorted.KernelArgs)
	slices.Reverse(sorted.Extensions)

	if requestHash(sorted) != goldenFull {
		t.Error("the order of kernel arguments and extensions, which the SDK changes, makes a difference")
	}

	for name, change := range map[string]func(*omnispecs.MachineRequestSpec){
		"version": func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = "1.13.6" },
		"class":   func(s *omnispecs.MachineRequestSpec) { s.ProviderData += "cpus: 2\n" },
		"overlay": func(s *omnispecs.MachineRequestSpec) { s.Overlay.Name = "p" },
		"ext":     func(s *omnispecs.MachineRequestSpec) { s.Extensions = s.Extensions[:1] },
		"args":    func(s *omnispecs.MachineRequestSpec) { s.KernelArgs[0] = "console=ttyS1" },
		"meta":    func(s *omnispecs.MachineRequestSpec) { s.MetaValues[0].Key = 13 },
		"tunnel":  func(s *omnispecs.MachineRequestSpec) { s.GrpcTunnel = omnispecs.GrpcTunnelMode_DISABLED },
	} {
		changed := full()
		change(changed)

		if requestHash(changed) == goldenFull {
			t.Errorf("%s makes no difference", name)
		}
	}
}

// Invariant: stored formats are promises: a plan of a newer version is neither
// carried out nor taken down by one that does not know all of it.
func TestAPlanOfANewerVersionIsLeftToIt(t *testing.T) {
	t.Parallel()

	if err := checkFormat(&specs.Plan{}); err != nil {
		t.Errorf("a plan without a format: %v", err)
	}

	if err := checkFormat(&specs.Plan{Format: planFormat}); err != nil {
		t.Errorf("our own: %v", err)
	}

	err := checkFormat(&specs.Plan{Format: planFormat + 1})
	if err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("a newer one: %v", err)
	}
}
