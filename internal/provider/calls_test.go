package provider

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// rackCalls are the operations that the rack was asked for while f ran, in order.
func (b *bench) rackCalls(f func()) []string {
	b.t.Helper()

	before := len(b.sim.Calls())

	f()

	var out []string
	for _, c := range b.sim.Calls()[before:] {
		out = append(out, c.Operation)
	}

	return out
}

// writesOf are what was written into Omni while f ran, by verb and type.
func (b *bench) writesOf(f func()) map[string]int {
	b.t.Helper()

	before := len(b.omni.Calls())

	f()

	out := map[string]int{}

	for _, c := range b.omni.Calls()[before:] {
		switch kind, _, _ := strings.Cut(c.Type, "."); c.Verb {
		case "Create", "Update", "Destroy", "Teardown", "TeardownAndDestroy":
			out[c.Verb+" "+kind]++
		}
	}

	return out
}

func sum(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}

	return n
}

// perKind counts what stands in a list, for a line of the log.
func perKind(of []string) map[string]int {
	m := map[string]int{}
	for _, o := range of {
		m[o]++
	}

	return m
}

// probed is what the daemon's probe of the rack does twice a minute.
func (b *bench) probed() {
	b.t.Helper()

	me, err := b.rack.Me(b.t.Context())
	b.ok(err)
	b.work.identity.tell(me, nil)
}

// Invariant: a machine costs the rack these calls and no others, each of which
// internal/docs/calls.md explains. Looks at a start or a stop repeat only where it
// takes longer than those before it.
func TestTheCallsOfAMachine(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		_, err := b.operator().VpcSubnetCreate(t.Context(), oxide.VpcSubnetCreateParams{
			Project: oxide.NameOrId(b.project.Id), Vpc: "default",
			Body: &oxide.VpcSubnetCreate{Name: "storage", Ipv4Block: "172.31.0.0/22"},
		})
		b.ok(err)

		b.start()
		b.ask("first")
		b.untilStage("first", stageProvisioned)

		for _, m := range []struct {
			id, class    string
			after        time.Duration
			made, undone []string
		}{
			{
				id: "second", class: "project: demo\n", after: poolLife + time.Minute,
				made: []string{
					"project_view", "vpc_subnet_view", "ip_pool_list", "utilization_view",
					"instance_create", "instance_start", "instance_view",
				},
				undone: []string{"instance_view", "instance_stop", "instance_view", "instance_delete", "disk_list", "disk_delete"},
			},
			{
				id: "larger", after: poolLife / 2,
				class: "project: demo\ndisks: [{size: 10}, {size: 10}]\nnetwork_interfaces: [{subnet_name: default}, {subnet_name: storage}]\n",
				made: []string{
					"project_view", "vpc_subnet_view", "vpc_subnet_view", "utilization_view",
					"instance_create", "instance_disk_list", "instance_start", "instance_view",
				},
				undone: []string{
					"instance_view", "instance_stop", "instance_view", "instance_delete",
					"disk_list", "disk_delete", "disk_delete", "disk_delete",
				},
			},
		} {
			// Longer than any look lasts that is shared, but for the one at the pools.
			b.pass(m.after)
			b.probed()

			var made []string

			writes := b.writesOf(func() {
				made = b.rackCalls(func() {
					b.ask(m.id, class(m.class))
					b.untilStage(m.id, stageProvisioned)
				})
			})

			if !slices.Equal(made, m.made) {
				t.Errorf("%s is made with\n%q, want\n%q", m.id, made, m.made)
			}

			t.Logf("%s: %d writes into Omni, %v", m.id, sum(writes), writes)

			if sum(writes) > 20 {
				t.Errorf("%d writes into Omni for %s: %v", sum(writes), m.id, writes)
			}

			b.pass(30 * time.Second)
			b.probed()

			undone := b.rackCalls(func() {
				b.remove(m.id)
				b.untilReleased(m.id)
			})
			if !slices.Equal(undone, m.undone) {
				t.Errorf("%s is taken away with\n%q, want\n%q", m.id, undone, m.undone)
			}
		}
	})
}

// Invariant: nothing is asked of each machine that only starts, rests or finds its
// daemon restarted. Many of them cost a create and a start each, and what a few
// cost.
func TestManyMachinesCostFewCalls(t *testing.T) {
	t.Parallel()

	const (
		machines = 60
		rest     = 20 // minutes
	)

	bubble(t, func(t *testing.T, b *bench) {
		change := func(o *Options) {
			o.Concurrency, o.MaxCreates = 20, 9
			o.Janitor, o.JanitorGrace = JanitorOn, 10*time.Minute
		}
		d := b.serve(change)

		began := time.Now()
		calls := b.rackCalls(func() {
			for i := range machines {
				b.ask(fmt.Sprintf("m-%03d", i))
			}

			for i := range machines {
				b.untilStage(fmt.Sprintf("m-%03d", i), stageProvisioned)
			}
		})

		t.Logf("%d machines in %s: %d calls, %v", machines, time.Since(began), len(calls), perKind(calls))

		if len(calls) > 2*machines+50 {
			t.Errorf("%d calls for %d machines: %v", len(calls), machines, perKind(calls))
		}

		// The janitor comes to rest too.
		b.pass(15 * time.Minute)

		writes := b.writesOf(func() { calls = b.rackCalls(func() { b.pass(rest * time.Minute) }) })

		t.Logf("%d minutes at rest: %d calls, %v; written into Omni: %v", rest, len(calls), perKind(calls), writes)

		if len(calls) > 6*rest {
			t.Errorf("%d calls in %d minutes: %v", len(calls), rest, perKind(calls))
		}

		for what := range maps.Keys(writes) {
			if !slices.Contains([]string{"Update InfraProviderHealthStatuses", "Update ImportRun"}, what) {
				t.Errorf("at rest there is %s: %d times", what, writes[what])
			}
		}

		b.ok(d.stop())

		began = time.Now()
		writes = b.writesOf(func() {
			calls = b.rackCalls(func() {
				d = b.serve(change)
				b.until("the restarted daemon to be ready", d.board.Ready)

				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("ready again after %s", took)
				}

				b.pass(20 * time.Second)
			})
		})

		t.Logf("restarted: %d calls, %v; written into Omni: %v", len(calls), perKind(calls), writes)

		if len(calls) > 30 {
			t.Errorf("%d calls for a restart: %v", len(calls), perKind(calls))
		}

		if n := sum(writes); n > 15 {
			t.Errorf("%d writes into Omni for a restart: %v", n, writes)
		}

		for what := range writes {
			if strings.Contains(what, "MachineRequest") || strings.Contains(what, "Instance") || strings.Contains(what, "ConfigPatch") {
				t.Errorf("a restart writes: %v", writes)
			}
		}
	}, func(s *setup) { s.rack.Sleds = simrack.DefaultSleds(40) })
}
