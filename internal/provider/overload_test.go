package provider

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// crowded is how many wait in TestManyThatWaitCostWhatOneCosts, and for how long
// their calls are counted.
type crowded struct {
	full, missing, well int
	long                time.Duration
}

// crowdedBy is what is run each time, or the full form with OIPO_CROWD.
func crowdedBy() crowded {
	if os.Getenv("OIPO_CROWD") == "" {
		return crowded{full: 8, missing: 3, well: 5, long: 10 * time.Minute}
	}

	return crowded{full: 50, missing: 10, well: 20, long: time.Hour}
}

// Rule: who waits for the same costs what one costs. Requests that wait for quota,
// others for a missing subnet, and healthy ones: the healthy ones are as quick as
// without the others, the others cost a few calls a minute in all, however many
// they are, say why, and come about when the cause is gone.
func TestManyThatWaitCostWhatOneCosts(t *testing.T) {
	t.Parallel()

	n := crowdedBy()

	bubble(t, func(t *testing.T, b *bench) {
		quota := b.shareImages()
		b.serve(func(o *Options) { o.Concurrency = 10 })

		ask := func(name string, count int, change ...func(*omnispecs.MachineRequestSpec)) {
			for i := range count {
				b.ask(fmt.Sprintf("%s-%02d", name, i), change...)
			}
		}
		// made waits until all of a name are, and answers how long it took.
		made := func(name string, count int) time.Duration {
			began := time.Now()

			for i := range count {
				b.untilStage(fmt.Sprintf("%s-%02d", name, i), stageProvisioned)
			}

			return time.Since(began)
		}

		ask("alone", n.well)
		alone := made("alone", n.well)

		ask("full", n.full, class("project: big\ncpus: 64\n"))
		ask("missing", n.missing, class("project: demo\nnetwork_interfaces: [{subnet_name: missing}]\n"))
		b.pass(5 * time.Minute)

		ask("well", n.well)

		took := made("well", n.well)
		if took > alone+alone/2+2*time.Second {
			t.Errorf("the healthy ones took %s, and %s without the others", took, alone)
		}

		creates, views, calls := b.sim.CallCount("instance_create"), b.sim.CallCount("vpc_subnet_view"), len(b.sim.Calls())
		b.pass(n.long)

		creates, views, calls = b.sim.CallCount("instance_create")-creates, b.sim.CallCount("vpc_subnet_view")-views, len(b.sim.Calls())-calls
		t.Logf("in %s: %d creates, %d looks for the subnet, %d calls in all; healthy ones in %s, alone in %s", n.long, creates, views, calls, took, alone)

		// One in two minutes of each, which may be spread to three quarters.
		if minutes := int(n.long / time.Minute); creates > 1+minutes*48/60 || views > 1+minutes*48/60 {
			t.Errorf("%d creates and %d looks for the subnet in %s", creates, views, n.long)
		}

		for name, why := range map[string]string{"full": "quota is used up", "missing": `has no subnet "missing"`} {
			for i := range map[string]int{"full": n.full, "missing": n.missing}[name] {
				st := b.status(fmt.Sprintf("%s-%02d", name, i))
				if text := st.GetStatus() + st.GetError(); !strings.Contains(text, why) {
					t.Errorf("%s-%02d says %q", name, i, text)
				}
			}
		}

		b.sim.RemoveFault(quota)
		b.makeSubnet("missing")

		if took := made("full", n.full) + made("missing", n.missing); took > 10*time.Minute {
			t.Errorf("healed after %s", took)
		}
	}, func(s *setup) {
		s.rack.Sleds, s.rack.Projects = simrack.DefaultSleds(64), []string{"demo", "big"}
	})
}

// shareImages has the project big take the images of the other, and have no quota
// for instances: it answers the fault.
func (b *bench) shareImages() (quota int) {
	b.t.Helper()

	c := b.operator()
	ctx := b.t.Context()
	b.seed()

	images, err := b.rack.ListImages(ctx, b.project.Id)
	b.ok(err)

	for _, i := range images {
		_, err = c.ImagePromote(ctx, oxide.ImagePromoteParams{Image: oxide.NameOrId(i.Id)})
		b.ok(err)
	}

	big, err := c.ProjectView(ctx, oxide.ProjectViewParams{Project: "big"})
	b.ok(err)

	quota, err = b.sim.AddFault(simrack.Fault{
		Operation: "instance_create", Path: big.Id, Action: simrack.ActionError, Status: 507,
		Code: "InsufficientCapacity", Message: "Insufficient capacity: vCPU Limit Exceeded: the silo's quota is used up",
	})
	b.ok(err)

	return quota
}

func (b *bench) makeSubnet(name string) {
	b.t.Helper()

	_, err := b.operator().VpcSubnetCreate(b.t.Context(), oxide.VpcSubnetCreateParams{
		Project: oxide.NameOrId(b.project.Id), Vpc: "default",
		Body: &oxide.VpcSubnetCreate{Name: oxide.Name(name), Description: "late", Ipv4Block: "172.31.0.0/22"},
	})
	b.ok(err)
}

// Rule: what the rack asks for is obeyed, in both forms, by all calls together; one
// of them tries when it is over.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()

	for name, after := range map[string]string{"seconds": "90", "a date": "date"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				d := b.serve()
				b.untilReady(d)

				if after == "date" {
					after = time.Now().Add(90 * time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
				}

				b.fault(simrack.Fault{Operation: "project_view", Action: simrack.ActionError, Status: 429, Message: "slow down", RetryAfter: after, Count: 1})

				views := b.sim.CallCount("project_view")

				for i := range 10 {
					b.ask(fmt.Sprintf("r-%d", i))
				}

				b.until("the rack to ask for a pause", func() bool { return b.sim.CallCount("project_view") > views })
				b.pass(2 * time.Second)

				before := len(b.sim.Calls()) - b.sim.CallCount("ping")
				b.pass(80 * time.Second)

				if n := len(b.sim.Calls()) - b.sim.CallCount("ping") - before; n != 0 {
					t.Errorf("%d calls in the pause", n)
				}

				for i := range 10 {
					b.untilStage(fmt.Sprintf("r-%d", i), stageProvisioned)
				}
			}, func(s *setup) { s.rack.Sleds = simrack.DefaultSleds(8) })
		})
	}
}
