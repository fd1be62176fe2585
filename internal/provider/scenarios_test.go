package provider

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// Whatever the rack refuses a create for, the request says it in the rack's own
// words, nothing is left behind by the tries, another project is not held up, and
// it goes on by itself once the rack lets it.
func TestARefusedCreateIsExplainedLeavesNothingAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()

	for name, f := range map[string]simrack.Fault{
		"silo's quota":        {Status: 507, Code: "InsufficientCapacity", Message: "Insufficient capacity: the silo's quota of CPUs is used up"},
		"exhausted pool":      {Status: 400, Code: "InvalidRequest", Message: "No external IP addresses available"},
		"no jumbo frames":     {Status: 400, Code: "InvalidRequest", Message: "jumbo frames need a fleet-wide opt-in"},
		"rack in trouble":     {Status: 503, Code: "ServiceNotAvailable", Message: "Service Unavailable"},
		"error of the rack's": {Status: 500, Code: "Internal", Message: "Internal Server Error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				_, err := b.operator().ImagePromote(t.Context(), oxide.ImagePromoteParams{Image: oxide.NameOrId(b.talosImage.Id)})
				b.ok(err)

				f.Operation, f.Path, f.Action, f.Count = "instance_create", b.project.Id, simrack.ActionError, 5
				b.fault(f)
				b.start()
				b.ask(theRequest)
				b.ask("other-project", class("project: other\n"))
				b.untilStage("other-project", stageProvisioned)

				words := f.Message
				b.until("the rack's words to be shown", func() bool {
					st := b.status(theRequest)

					return strings.Contains(st.GetStatus()+st.GetError(), words)
				})
				b.wantLeft(0, 0)
				b.untilStage(theRequest, stageProvisioned)
				b.wantLeft(1, 1)

				if n := b.sim.CallCount("instance_create"); n > 8 {
					t.Errorf("%d creates", n)
				}
			}, func(s *setup) { s.rack.Projects = []string{"demo", "other"} })
		})
	}
}

// An error that no retry can fix is tried slowly: fifty requests whose subnet does
// not exist make nothing for an hour, cost few calls, and heal within minutes of
// the subnet's making.
func TestAMissingSubnetIsAskedForSlowlyAndHeals(t *testing.T) {
	t.Parallel()

	const requests = 50

	bubble(t, func(t *testing.T, b *bench) {
		c := b.operator()

		b.start()

		for i := range requests {
			b.ask(fmt.Sprintf("r-%02d", i), class("project: demo\nnetwork_interfaces: [{subnet_name: missing}]\n"))
		}

		b.pass(time.Hour)

		if asked, _ := b.images.seen(); len(asked) != 0 || b.sim.CallCount("instance_create") != 0 {
			t.Errorf("%d images were asked for and %d creates made", len(asked), b.sim.CallCount("instance_create"))
		}

		// Four reads a minute for each: silo, project, VPC, subnet.
		if n := len(b.sim.Calls()) - b.callsBefore; n > requests*60*4 {
			t.Errorf("%d calls in an hour", n)
		}

		if got := b.status("r-00").GetError(); !strings.Contains(got, `network_interfaces[0].subnet_name: VPC "default" has no subnet "missing"`) {
			t.Errorf("Omni says %q", got)
		}

		_, err := c.VpcSubnetCreate(t.Context(), oxide.VpcSubnetCreateParams{
			Project: oxide.NameOrId(b.project.Id), Vpc: "default",
			Body: &oxide.VpcSubnetCreate{Name: "missing", Description: "late", Ipv4Block: "172.31.0.0/22"},
		})
		b.ok(err)

		began := time.Now()

		for i := range requests {
			b.untilStage(fmt.Sprintf("r-%02d", i), stageProvisioned)
		}

		if took := time.Since(began); took > 10*time.Minute {
			t.Errorf("healed after %s", took)
		}
	}, func(s *setup) { s.rack.Sleds = simrack.DefaultSleds(16) })
}

// Any request ID that Omni can make gives a machine with legal names of its own,
// its hostname that of the instance, and goes without a trace.
func TestAnyRequestIDGivesAMachineOfItsOwn(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("long-", 14)

	bubble(t, func(t *testing.T, b *bench) {
		ids := []string{
			"Prod.EU_Workers-bbbbbb", "prod.eu_workers-bbbbbb", "1-workers-zzzzzz", "trailing-",
			"abcdef01-2345-6789-abcd-0123456789ab", long + "a", long + "b", strings.Repeat("x", 200),
		}

		b.start()

		for _, id := range ids {
			b.ask(id)
		}

		hosts := map[string]bool{}

		for _, id := range ids {
			b.untilStage(id, stageProvisioned)

			i, err := b.rack.ViewInstance(t.Context(), b.stored(id).TypedSpec().Value.GetInstanceId())
			b.ok(err)

			if string(i.Name) != i.Hostname || string(i.Name) != naming.Instance(id) {
				t.Errorf("request %q has instance %q with hostname %q", id, i.Name, i.Hostname)
			}

			hosts[i.Hostname] = true
		}

		if len(hosts) != len(ids) {
			t.Errorf("%d requests have %d hostnames", len(ids), len(hosts))
		}

		b.wantLeft(len(ids), len(ids))

		for _, id := range ids {
			b.remove(id)
		}

		for _, id := range ids {
			b.untilReleased(id)
		}

		b.wantLeft(0, 0)
	})
}

// A group whose policy can not be met keeps what does not fit waiting with the
// rack's reason, and is itself never changed.
func TestAGroupThatCanNotBeMetKeepsTheRestWaiting(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		c := b.operator()

		group, err := c.AntiAffinityGroupCreate(t.Context(), oxide.AntiAffinityGroupCreateParams{
			Project: oxide.NameOrId(b.project.Id),
			Body: &oxide.AntiAffinityGroupCreate{
				Name: "apart", Description: "theirs", Policy: oxide.AffinityPolicyFail, FailureDomain: oxide.FailureDomainSled,
			},
		})
		b.ok(err)
		b.start()

		for i := range 5 {
			b.ask(fmt.Sprintf("apart-%d", i), class("project: demo\nanti_affinity_groups: [apart]\n"))
		}

		up, waiting := 0, ""

		b.pass(20 * time.Minute)

		for i := range 5 {
			if st := b.status(fmt.Sprintf("apart-%d", i)); st.GetStage() == stageProvisioned {
				up++
			} else {
				waiting += st.GetStatus() + "\n"
			}
		}

		if up != 3 || strings.Count(waiting, "starting the instance") != 2 {
			t.Errorf("%d are up, and the others say\n%s", up, waiting)
		}

		for i := range 5 {
			b.remove(fmt.Sprintf("apart-%d", i))
		}

		for i := range 5 {
			b.untilReleased(fmt.Sprintf("apart-%d", i))
		}

		b.wantLeft(0, 0)

		now, err := c.AntiAffinityGroupView(t.Context(), oxide.AntiAffinityGroupViewParams{AntiAffinityGroup: oxide.NameOrId(group.Id)})
		if err != nil || now.Description != "theirs" || now.Policy != oxide.AffinityPolicyFail {
			t.Errorf("the group is now %+v, %v", now, err)
		}
	}, func(s *setup) { s.rack.Sleds = simrack.DefaultSleds(3) })
}
