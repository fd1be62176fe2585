package provider

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// Rule: who waits for the same costs what one costs. Fifty requests that wait for
// quota, ten for a missing subnet and twenty healthy ones: the healthy ones are as
// quick as without the others, the others cost a few calls a minute in all, say
// why, and come about when the cause is gone.
//
// The race detector makes minutes of it: make crowd runs it without.
func TestManyThatWaitCostWhatOneCosts(t *testing.T) {
	if os.Getenv("OIPO_CROWD") == "" {
		t.Skip("not asked for with OIPO_CROWD, as make crowd does")
	}

	t.Parallel()

	const full, missing, well = 50, 10, 20

	// alone is how long the healthy ones take without the others.
	var alone time.Duration

	for _, crowd := range []bool{false, true} {
		bubble(t, func(t *testing.T, b *bench) {
			c := b.operator()
			all := map[string]int{"well": well}

			if crowd {
				all["full"], all["missing"] = full, missing
			}

			big, err := c.ProjectView(t.Context(), oxide.ProjectViewParams{Project: "big"})
			b.ok(err)

			quota, err := b.sim.AddFault(simrack.Fault{
				Operation: "instance_create", Path: big.Id, Action: simrack.ActionError, Status: 507,
				Code: "InsufficientCapacity", Message: "Insufficient capacity: vCPU Limit Exceeded: the silo's quota is used up",
			})
			b.ok(err)
			b.serve(func(o *Options) { o.Concurrency = 10 })

			// Both projects have the image.
			images, err := b.rack.ListImages(t.Context(), b.project.Id)
			b.ok(err)

			for _, i := range images {
				_, err = c.ImagePromote(t.Context(), oxide.ImagePromoteParams{Image: oxide.NameOrId(i.Id)})
				b.ok(err)
			}

			if crowd {
				for i := range full {
					b.ask(fmt.Sprintf("full-%02d", i), class("project: big\ncpus: 64\n"))
				}

				for i := range missing {
					b.ask(fmt.Sprintf("missing-%02d", i), class("project: demo\nnetwork_interfaces: [{subnet_name: missing}]\n"))
				}

				b.pass(5 * time.Minute)
			}

			began := time.Now()

			for i := range well {
				b.ask(fmt.Sprintf("well-%02d", i))
			}

			for i := range well {
				b.untilStage(fmt.Sprintf("well-%02d", i), stageProvisioned)
			}

			took := time.Since(began)

			if !crowd {
				alone = took

				return
			}

			if took > alone+alone/2+2*time.Second {
				t.Errorf("the healthy ones took %s, and %s without the others", took, alone)
			}

			creates, views, calls := b.sim.CallCount("instance_create"), b.sim.CallCount("vpc_subnet_view"), len(b.sim.Calls())
			b.pass(time.Hour)

			creates, views, calls = b.sim.CallCount("instance_create")-creates, b.sim.CallCount("vpc_subnet_view")-views, len(b.sim.Calls())-calls
			t.Logf("in an hour: %d creates, %d looks for the subnet, %d calls in all; healthy ones in %s, alone in %s", creates, views, calls, took, alone)

			// One in two minutes and one in four, which may be spread to three quarters.
			if creates > 48 || views > 24 {
				t.Errorf("%d creates and %d looks for the subnet in an hour", creates, views)
			}

			for _, id := range []string{"full-00", "full-49", "missing-00", "missing-09"} {
				st := b.status(id)
				if text := st.GetStatus() + st.GetError(); !strings.Contains(text, "quota is used up") && !strings.Contains(text, `has no subnet "missing"`) {
					t.Errorf("%s says %q", id, text)
				}
			}

			b.sim.RemoveFault(quota)

			_, err = c.VpcSubnetCreate(t.Context(), oxide.VpcSubnetCreateParams{
				Project: oxide.NameOrId(b.project.Id), Vpc: "default",
				Body: &oxide.VpcSubnetCreate{Name: "missing", Description: "late", Ipv4Block: "172.31.0.0/22"},
			})
			b.ok(err)

			healed := time.Now()

			for name, n := range all {
				for i := range n {
					b.untilStage(fmt.Sprintf("%s-%02d", name, i), stageProvisioned)
				}
			}

			if took := time.Since(healed); took > 10*time.Minute {
				t.Errorf("healed after %s", took)
			}
		}, func(s *setup) {
			s.rack.Sleds, s.rack.Projects = simrack.DefaultSleds(64), []string{"demo", "big"}
		})
	}
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
