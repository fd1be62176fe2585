package provider

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// mistake is what a person must mend in the rack before a class can be made.
type mistake struct {
	class, want string
	// make makes it, and answers how it is mended.
	make func(b *bench, c *oxide.Client) (mend func())
}

func (b *bench) quota(f simrack.Fault) (mend func()) {
	b.t.Helper()

	f.Condition = simrack.ConditionQuota
	id, err := b.sim.AddFault(f)
	b.ok(err)

	return func() { b.sim.RemoveFault(id) }
}

func (b *bench) addGroup(c *oxide.Client, name string, members int) (mend func()) {
	b.t.Helper()

	_, err := c.AntiAffinityGroupCreate(b.t.Context(), oxide.AntiAffinityGroupCreateParams{
		Project: oxide.NameOrId(b.project.Id),
		Body:    &oxide.AntiAffinityGroupCreate{Name: oxide.Name(name), Policy: oxide.AffinityPolicyAllow, FailureDomain: oxide.FailureDomainSled},
	})
	b.ok(err)

	start := false

	for i := range members {
		_, err := b.rack.CreateInstance(b.t.Context(), b.project.Id, oxide.InstanceCreate{
			Name: oxide.Name(fmt.Sprintf("member%d", i)), Hostname: "member", Ncpus: 1, Memory: gib, Start: &start, SshPublicKeys: []oxide.NameOrId{},
			NetworkInterfaces:  oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}},
			AntiAffinityGroups: []oxide.NameOrId{oxide.NameOrId(name)},
		})
		b.ok(err)
	}

	return func() {
		b.ok(c.InstanceDelete(b.t.Context(), oxide.InstanceDeleteParams{Project: oxide.NameOrId(b.project.Id), Instance: "member0"}))
	}
}

func mistakes() map[string]mistake {
	few := func(n int64) *int64 { return &n }

	return map[string]mistake{
		"project": {
			"project: late", `project: "late" is not in the silo, or the daemon's token has no role in it`,
			func(b *bench, c *oxide.Client) func() {
				_, err := b.rack.PromoteImage(b.t.Context(), b.talosImage.Id)
				b.ok(err)

				return func() {
					_, err := c.ProjectCreate(b.t.Context(), oxide.ProjectCreateParams{Body: &oxide.ProjectCreate{Name: "late"}})
					b.ok(err)
				}
			},
		},
		"subnet": {
			"project: demo\nnetwork_interfaces: [{subnet_name: late}]", `network_interfaces[0].subnet_name: VPC "default" has no subnet "late"`,
			func(b *bench, c *oxide.Client) func() {
				return func() {
					_, err := c.VpcSubnetCreate(b.t.Context(), oxide.VpcSubnetCreateParams{
						Project: oxide.NameOrId(b.project.Id), Vpc: "default", Body: &oxide.VpcSubnetCreate{Name: "late", Ipv4Block: "10.0.0.0/22"},
					})
					b.ok(err)
				}
			},
		},
		"group": {
			"project: demo\nanti_affinity_groups: [late]", `anti_affinity_groups[0]: project "demo" has no group "late"`,
			func(b *bench, c *oxide.Client) func() { return func() { b.addGroup(c, "late", 0) } },
		},
		"full group": {
			"project: demo\nanti_affinity_groups: [full]", `anti_affinity_groups[0]: group "full" has 32 members, and the rack's limit is 32: take another one`,
			func(b *bench, c *oxide.Client) func() { return b.addGroup(c, "full", machineclass.MaxSetGroupMembers) },
		},
		"vCPUs": {
			"project: demo\ncpus: 5", "cpus: the machine needs 5 vCPUs, and the silo's whole quota is 4 vCPUs",
			func(b *bench, _ *oxide.Client) func() { return b.quota(simrack.Fault{CPUs: few(4)}) },
		},
		"memory": {
			"project: demo\nmemory: 9", "memory: the machine needs 9 GiB of memory, and the silo's whole quota is 8 GiB of memory",
			func(b *bench, _ *oxide.Client) func() { return b.quota(simrack.Fault{Memory: few(8 * gib)}) },
		},
		"storage": {
			"project: demo\ndisks: [{size: 10}, {size: 1, type: local}]",
			"boot_disk_size and disks: the machine needs 21 GiB of storage, and the silo's whole quota is 20 GiB of storage",
			func(b *bench, _ *oxide.Client) func() { return b.quota(simrack.Fault{Storage: few(20 * gib)}) },
		},
	}
}

// Invariant: what a person must mend shows as FAILED with one line that names the
// field, before any image is asked for, and heals by itself when it is mended.
func TestAMistakeHealsWhenItIsMended(t *testing.T) {
	t.Parallel()

	for name, m := range mistakes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				mend := m.make(b, b.sdk())
				b.callsBefore = len(b.sim.Calls())

				b.start()
				b.ask(theRequest, class(m.class))
				b.untilStage(theRequest, stageFailed)
				b.pass(10 * time.Minute)
				b.untilStage(theRequest, stageFailed)

				if got := b.status(theRequest).GetError(); got != m.want {
					t.Errorf("the request says\n%q, want\n%q", got, m.want)
				}

				if asked, _ := b.images.seen(); len(asked) > 0 {
					t.Errorf("images were asked for: %+v", asked)
				}

				for _, c := range b.sim.Calls()[b.callsBefore:] {
					if changes(c.Operation) {
						t.Errorf("the rack was asked for %s", c.Operation)
					}
				}

				mend()

				began := time.Now()
				b.untilStage(theRequest, stageProvisioned)

				if took := time.Since(began); took > 4*time.Minute {
					t.Errorf("it took %s after it was mended", took)
				}
			})
		})
	}
}

// Every machine with an IPv4 interface takes part of an address of the default
// pool, and one without needs none.
func TestWithoutADefaultPoolOnlyIPv6IsMade(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		b.start()
		b.ask("six", class("project: demo\nnetwork_interfaces: [{ip_config: v6}]"))
		b.untilStage("six", stageProvisioned)

		b.ask(theRequest)
		b.untilStage(theRequest, stageFailed)
		b.wantRefusedAs("network_interfaces: the silo has no default IPv4 address pool, which every machine with an IPv4 interface needs: " +
			"have the rack's operator link one as default")
	}, func(s *setup) {
		s.rack.Pools = []simrack.Pool{{Name: "other", IPVersion: "v4", First: "198.18.0.0", Size: 8}}
	})
}

func (b *bench) wantRefusedAs(want string) {
	b.t.Helper()

	if got := b.status(theRequest).GetError(); got != want {
		b.t.Errorf("the request says\n%q, want\n%q", got, want)
	}
}

// A quota that others use up is waited for, and says so.
func TestAUsedUpQuotaIsWaitedFor(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.start()
		b.ask("first", class("project: demo\ncpus: 3"))
		b.untilStage("first", stageProvisioned)
		b.pass(lookLife)

		asked, _ := b.images.seen()

		b.ask(theRequest, class("project: demo\ncpus: 2"))

		const want = "waiting for quota: the machine needs 2 vCPUs, and the silo has 1 vCPU free; free some or ask for a larger quota"

		b.until("it to say what it waits for", func() bool { return b.status(theRequest).GetStatus() == want })

		if now, _ := b.images.seen(); len(now) != len(asked) {
			t.Error("an image was asked for")
		}

		b.remove("first")
		b.untilReleased("first")
		b.untilStage(theRequest, stageProvisioned)
	}, func(s *setup) { s.rack.Quota = simrack.Quota{CPUs: 4} })
}

// Invariant: many requests of one class cost the rack no more looks than a few.
func TestManyRequestsShareTheirLooks(t *testing.T) {
	t.Parallel()

	const (
		requests = 60
		during   = 10 * time.Minute
	)

	bubble(t, func(t *testing.T, b *bench) {
		b.start()

		for i := range requests {
			b.ask(fmt.Sprintf("talos-workers-%06d", i), class("project: demo\nnetwork_interfaces: [{subnet_name: late}]"))
		}

		b.pass(during)

		for _, op := range []string{"project_view", "vpc_view", "vpc_subnet_view"} {
			if n := b.sim.CallCount(op); n > int(during/lookLife)+5 {
				t.Errorf("%d calls of %s for %d requests in %s", n, op, requests, during)
			}
		}

		if got := b.status("talos-workers-000059").GetError(); !strings.Contains(got, "has no subnet") {
			t.Errorf("the last one says %q", got)
		}
	})
}
