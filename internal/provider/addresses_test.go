package provider

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// bothVersions gives the rack default pools of both IP versions and two others.
func bothVersions(s *setup) {
	s.rack.Pools = []simrack.Pool{
		{Name: "default", IPVersion: "v4", Default: true, First: "198.18.0.1", Size: 4000},
		{Name: "six", IPVersion: "v6", Default: true, First: "2001:db8::1", Size: 100},
		{Name: "public", IPVersion: "v4", First: "203.0.113.1", Size: 100},
		{Name: "other-six", IPVersion: "v6", First: "2001:db8:1::1", Size: 100},
	}
}

// floating makes a floating address for people, out of a pool or the default one.
func (b *bench) floating(name, pool string) *oxide.FloatingIp {
	b.t.Helper()

	selector := oxide.PoolSelector{Value: oxide.PoolSelectorAuto{IpVersion: oxide.IpVersionV4}}
	if pool != "" {
		selector = oxide.PoolSelector{Value: oxide.PoolSelectorExplicit{Pool: oxide.NameOrId(pool)}}
	}

	f, err := b.rack.CreateFloatingIP(b.t.Context(), b.project.Id, oxide.FloatingIpCreate{
		Name: oxide.Name(name), Description: "made by people",
		AddressAllocator: oxide.AddressAllocator{Value: oxide.AddressAllocatorAuto{PoolSelector: selector}},
	})
	b.ok(err)

	return f
}

func (b *bench) attach(floating, instance string) {
	b.t.Helper()

	_, err := b.sdk().FloatingIpAttach(b.t.Context(), oxide.FloatingIpAttachParams{
		FloatingIp: oxide.NameOrId(floating),
		Body:       &oxide.FloatingIpAttach{Kind: oxide.FloatingIpParentKindInstance, Parent: oxide.NameOrId(instance)},
	})
	b.ok(err)
}

func (b *bench) detach(floating string) {
	b.t.Helper()

	_, err := b.sdk().FloatingIpDetach(b.t.Context(), oxide.FloatingIpDetachParams{FloatingIp: oxide.NameOrId(floating)})
	b.ok(err)
}

// stranger makes an instance that is nobody's, with a fixed address or without.
func (b *bench) stranger(name, address string) *oxide.Instance {
	b.t.Helper()

	start := false
	stack := oxide.PrivateIpv4StackCreate{Ip: oxide.Ipv4Assignment{Value: oxide.Ipv4AssignmentAuto{}}}

	if address != "" {
		stack.Ip.Value = oxide.Ipv4AssignmentExplicit{Value: address}
	}

	i, err := b.rack.CreateInstance(b.t.Context(), b.project.Id, oxide.InstanceCreate{
		Name: oxide.Name(name), Hostname: oxide.Hostname(name), Ncpus: 1, Memory: gib, SshPublicKeys: []oxide.NameOrId{}, Start: &start,
		NetworkInterfaces: oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentCreate{
			Params: []oxide.InstanceNetworkInterfaceCreate{{
				Name: "net0", VpcName: "default", SubnetName: "default",
				IpConfig: oxide.PrivateIpStackCreate{Value: oxide.PrivateIpStackCreateV4{Value: stack}},
			}},
		}},
	})
	b.ok(err)

	return i
}

// external are the addresses that an instance is reached at, in JSON each, without
// its share of an address for its way out.
func (b *bench) external(instance string) []string {
	b.t.Helper()

	all, err := b.sdk().InstanceExternalIpList(b.t.Context(), oxide.InstanceExternalIpListParams{Instance: oxide.NameOrId(instance)})
	b.ok(err)

	var out []string

	for _, ip := range all.Items {
		text, err := json.Marshal(ip)
		b.ok(err)

		if !strings.Contains(string(text), `"snat"`) {
			out = append(out, string(text))
		}
	}

	return out
}

// floatings are the floating addresses of the project, by name.
func (b *bench) floatings() map[string]oxide.FloatingIp {
	b.t.Helper()

	all, err := b.rack.ListFloatingIPs(b.t.Context(), b.project.Id)
	b.ok(err)

	out := map[string]oxide.FloatingIp{}
	for _, f := range all {
		out[string(f.Name)] = f
	}

	return out
}

// wantFloatings wants the project to have just these.
func (b *bench) wantFloatings(names ...string) {
	b.t.Helper()

	var got []string
	for name := range b.floatings() {
		got = append(got, name)
	}

	slices.Sort(got)
	slices.Sort(names)

	if !slices.Equal(got, names) {
		b.t.Errorf("floating addresses %q, want %q", got, names)
	}
}

// Invariant: the addresses that a class asks for are the instance's, of each IP
// version, and what was made for it goes with it.
func TestTheAddressesOfAClassAreThere(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.furnish()

		subnet, err := b.sdk().VpcSubnetView(t.Context(), oxide.VpcSubnetViewParams{Project: "demo", Vpc: "default", Subnet: "s1"})
		b.ok(err)

		six := strings.TrimSuffix(string(subnet.Ipv6Block), "/64") + "77"
		listed := b.floatings()["gate"]

		b.start()
		made := b.provisioned(theRequest, `project: demo
network_interfaces:
- {ip_config: dual_stack, addresses: [172.30.0.20, 172.30.0.21]}
- {ip_config: dual_stack, subnet_name: s1, addresses: [10.1.0.9, "`+six+`"]}
external_ips: [{}, {pool: other-six}, {type: floating}, {type: floating, pool: six}, {type: floating, floating_ips: [gate, gate-2]}]
`)

		stacks := strings.Split(b.stacks(made.Id), "\n")
		if !strings.Contains(stacks[0], `"ip":"172.30.0.20"`) || !strings.Contains(stacks[0], `"v6"`) ||
			!strings.Contains(stacks[1], `"ip":"10.1.0.9"`) || !strings.Contains(stacks[1], `"ip":"`+six+`"`) {
			t.Errorf("the interfaces have %q", stacks)
		}

		ips := strings.Join(b.external(made.Id), "\n")
		first, second := b.floatings()[naming.FloatingIP(2, theRequest)], b.floatings()[naming.FloatingIP(3, theRequest)]

		for _, part := range []string{`"kind":"ephemeral"`, "198.18.0.", "2001:db8:1::", first.Ip, second.Ip, listed.Ip} {
			if !strings.Contains(ips, part) {
				t.Errorf("no %s among the external addresses:\n%s", part, ips)
			}
		}

		if n := len(b.external(made.Id)); n != 5 {
			t.Errorf("%d external addresses", n)
		}

		for _, f := range []oxide.FloatingIp{first, second} {
			mark, ok := naming.Parse(f.Description)
			if !ok || mark.Kind != naming.KindIP || mark.Key != naming.RequestKey(theRequest) || mark.Owner != b.owner || f.InstanceId != made.Id {
				t.Errorf("floating address %s of instance %q: %q", f.Name, f.InstanceId, f.Description)
			}
		}

		if !strings.HasPrefix(first.Ip, "198.18.") || !strings.HasPrefix(second.Ip, "2001:db8::") {
			t.Errorf("made %s and %s", first.Ip, second.Ip)
		}

		if f := b.stored(theRequest).TypedSpec().Value.GetPlan().GetFormat(); f != 2 {
			t.Errorf("format %d", f)
		}

		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantLeft(0, 0)
		b.wantFloatings("gate", "gate-2", "gate-3")

		if after := b.floatings()["gate"]; after.InstanceId != "" || after.Description != listed.Description || b.sim.CallCount("floating_ip_delete") != 2 {
			t.Errorf("the listed address is %+v after %d deletes", after, b.sim.CallCount("floating_ip_delete"))
		}
	}, bothVersions)
}

// Each list at its limit, and external addresses at theirs.
func TestAddressesAtTheirLimits(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		_, err := b.sdk().VpcSubnetCreate(t.Context(), oxide.VpcSubnetCreateParams{
			Project: "demo", Vpc: "default", Body: &oxide.VpcSubnetCreate{Name: "wide", Ipv4Block: "10.0.0.0/16"},
		})
		b.ok(err)

		addresses := func(n int) string {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprintf("10.0.%d.%d", 1+i/250, 1+i%250))
			}

			return "project: demo\nnetwork_interfaces: [{subnet_name: wide, addresses: [" + strings.Join(all, ", ") + "]}]\n"
		}

		ips := func(n int) string {
			return "project: demo\nexternal_ips: [{}" + strings.Repeat(", {type: floating}", n-1) + "]\n"
		}

		b.start()

		if stack := b.stacks(b.provisioned("wide", addresses(1024)).Id); !strings.Contains(stack, "10.0.1.1") {
			t.Errorf("the interface has %s", stack)
		}

		if n := len(b.external(b.provisioned("many", ips(32)).Id)); n != 32 {
			t.Errorf("%d external addresses", n)
		}

		for id, tc := range map[string]struct{ text, want string }{
			"beyond-a": {addresses(1025), "machine class: network_interfaces[0].addresses: 1025 entries are over the limit of 1024"},
			"beyond-b": {ips(33), "machine class: external_ips: 33 entries are over the limit of 32 in all"},
		} {
			b.ask(id, class(tc.text))
			b.untilStage(id, stageFailed)

			if got := b.status(id).GetError(); got != tc.want {
				t.Errorf("%s: %q", id, got)
			}
		}

		b.remove("many")
		b.untilReleased("many")
		b.wantFloatings()
	})
}

// What only the rack knows of a class's addresses is told before anything is made,
// by field, and heals when it is mended.
func TestWrongAddressesAreToldBeforeAnythingIsMade(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.floating("six-gate", "six")
		b.start()

		n := 0

		for text, want := range map[string]string{
			"network_interfaces: [{addresses: [172.30.0.20, 10.9.9.9]}]":                                    "network_interfaces[0].addresses[1]: 10.9.9.9 is not in 172.30.0.0/22 of subnet \"default\"",
			"network_interfaces: [{addresses: [172.30.0.4]}]":                                               "network_interfaces[0].addresses[0]: 172.30.0.4 is one that the rack keeps for itself in 172.30.0.0/22 of subnet \"default\"",
			"network_interfaces: [{addresses: [172.30.3.255]}]":                                             "network_interfaces[0].addresses[0]: 172.30.3.255 is one that the rack keeps",
			"external_ips: [{pool: nowhere}]":                                                               `external_ips[0].pool: the silo has no address pool "nowhere"`,
			"external_ips: [{pool: public, ip_version: v6}]\nnetwork_interfaces: [{ip_config: dual_stack}]": `external_ips[0].ip_version: pool "public" is of IP version v4, not v6`,
			"external_ips: [{pool: six}]":                                                                   `external_ips[0].pool: "six" is of IP version v6, not of the primary interface's ip_config v4`,
			"external_ips: [{}, {pool: public}]":                                                            "external_ips[1]: its pool is of IP version v4, as that of external_ips[0]",
			"external_ips: [{type: floating, floating_ips: [none]}]":                                        `external_ips[0].floating_ips[0]: project "demo" has no floating address "none"`,
			"external_ips: [{type: floating, floating_ips: [six-gate]}]":                                    `external_ips[0].floating_ips[0]: 2001:db8::1 of "six-gate" is not of the primary interface's ip_config v4`,
		} {
			n++
			id := fmt.Sprintf("wrong-%d", n)
			b.ask(id, class("project: demo\n"+text+"\n"))
			b.untilStage(id, stageFailed)

			if got := b.status(id).GetError(); !strings.HasPrefix(got, want) {
				t.Errorf("%s\n says %q\n want %q", text, got, want)
			}
		}

		b.wantLeft(0, 0)

		b.ask("heals", class("project: demo\nexternal_ips: [{type: floating, floating_ips: [late]}]\n"))
		b.untilStage("heals", stageFailed)
		b.floating("late", "")
		b.untilStage("heals", stageProvisioned)
	}, bothVersions)
}

// Invariant: an exhausted list is one line that names it and counts, and heals by
// itself when an entry is freed.
func TestAnExhaustedListHeals(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct{ class, says string }{
		"fixed": {
			"network_interfaces: [{addresses: [172.30.0.20, 172.30.0.21]}]",
			"network_interfaces[0].addresses (v4 addresses): none of the 2 is free: 1 have other machines of this provider, 1 somebody else",
		},
		"listed": {
			"external_ips: [{type: floating, floating_ips: [a, b]}]",
			"external_ips[0].floating_ips (floating addresses): none of the 2 is free: 1 have other machines of this provider, 1 somebody else",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				b.floating("a", "")
				b.floating("b", "")
				b.attach(b.floatings()["a"].Id, b.stranger("theirs", "172.30.0.20").Id)
				b.start()
				b.provisioned("first", "project: demo\n"+tc.class+"\n")
				b.ask("second", class("project: demo\n"+tc.class+"\n"))

				says := func() bool { return strings.HasSuffix(b.status("second").GetStatus(), tc.says) }
				b.until("the second one to say why: "+tc.says, says)

				// Steadily, and without a call that makes something.
				creates := b.sim.CallCount("instance_create")

				for range 40 {
					b.pass(10 * time.Second)

					if !says() || b.status("second").GetStage() == stageFailed {
						t.Fatalf("it says %v", b.status("second"))
					}
				}

				if n := b.sim.CallCount("instance_create") - creates; n != 0 {
					t.Errorf("%d creates", n)
				}

				b.remove("first")
				b.untilStage("second", stageProvisioned)
			})
		})
	}
}

// Invariant: what somebody else has taken, before the plan, after it or in the very
// moment of the create, is passed over; the next one is stored before it is used.
func TestTheNextEntryIsTakenWhenSomebodyElseHasOne(t *testing.T) {
	t.Parallel()

	classes := map[string]string{
		"fixed":  "project: demo\nnetwork_interfaces: [{addresses: [172.30.0.20, 172.30.0.21, 172.30.0.22]}]\n",
		"listed": "project: demo\nexternal_ips: [{type: floating, floating_ips: [a, b, c]}]\n",
	}

	for name, text := range classes {
		for _, when := range []string{"before the plan", "after the plan", "at the create", "at the create, unseen"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()

				bubble(t, func(t *testing.T, b *bench) {
					for _, n := range []string{"a", "b", "c"} {
						b.floating(n, "")
					}

					take := func(string) {
						their := b.stranger("theirs", "172.30.0.20")
						b.attach(b.floatings()["a"].Id, their.Id)
					}

					switch when {
					case "before the plan":
						take("")
					case "after the plan":
						b.images.answers(func(n int, _ image.Want) (image.Status, error) {
							if n == 1 {
								take("")

								return image.Status{Reason: "uploading", RetryIn: time.Second}, nil
							}

							return b.ready(b.talosImage), nil
						})
					case "at the create":
						once := false
						b.hook(&b.before, func(operation string) {
							if operation == "instance_create" && !once {
								once = true

								take(operation)
							}
						})
					default:
						// The rack says so, and shows no holder.
						message := `The IP address "172.30.0.20" is not available`
						if name == "listed" {
							message = `Floating IP "a" is already attached to another instance`
						}

						b.fault(simrack.Fault{
							Operation: "instance_create", Count: 1, Action: simrack.ActionError, Status: 400, Code: "InvalidRequest", Message: message,
						})
					}

					b.start()
					made := b.provisioned(theRequest, text)

					plan := b.stored(theRequest).TypedSpec().Value.GetPlan()
					if name == "fixed" && (plan.GetNics()[0].GetIpv4() != "172.30.0.21" || !strings.Contains(b.stacks(made.Id), "172.30.0.21")) {
						t.Errorf("planned %v, has %s", plan.GetNics(), b.stacks(made.Id))
					}

					if name == "listed" && (plan.GetExternalIps()[0].GetName() != "b" || b.floatings()["b"].InstanceId != made.Id) {
						t.Errorf("planned %v, has %s", plan.GetExternalIps(), b.external(made.Id))
					}

					b.remove(theRequest)
					b.untilReleased(theRequest)
					b.wantFloatings("a", "b", "c")

					if strings.HasPrefix(when, "at the create, unseen") {
						return
					}

					if their := b.floatings()["a"].InstanceId; their == "" {
						t.Error("the stranger has lost its address")
					}
				})
			})
		}
	}
}

// Invariant: a floating address is made once and goes with its machine, however
// answers are lost.
func TestLostAnswersAboutFloatingAddresses(t *testing.T) {
	t.Parallel()

	for _, operation := range []string{"floating_ip_create", "floating_ip_delete", "instance_create"} {
		for name, fault := range map[string]simrack.Fault{
			"done and lost":        {Action: simrack.ActionLoseAnswer},
			"done and answers 500": {Action: simrack.ActionErrorAfter},
			"done late":            {Action: simrack.ActionCommitLate, Delay: simrack.Duration(20 * time.Second)},
			"never done":           {Action: simrack.ActionReset},
			"refused":              {Action: simrack.ActionError, Status: 507, Code: "InsufficientCapacity", Message: "Insufficient capacity: No external IP addresses available"},
		} {
			t.Run(operation+" "+name, func(t *testing.T) {
				t.Parallel()

				bubble(t, func(t *testing.T, b *bench) {
					b.floating("gate", "")
					b.start()

					fault.Operation, fault.Count = operation, 1
					b.fault(fault)

					made := b.provisioned(theRequest, "project: demo\nexternal_ips: [{type: floating}, {type: floating}, {type: floating, floating_ips: [gate]}]\n")
					own := []string{naming.FloatingIP(0, theRequest), naming.FloatingIP(1, theRequest)}

					b.wantFloatings(append(own, "gate")...)

					for _, f := range b.floatings() {
						if f.InstanceId != made.Id {
							t.Errorf("%s is attached to %q", f.Name, f.InstanceId)
						}
					}

					b.remove(theRequest)
					b.untilReleased(theRequest)
					b.wantLeft(0, 0)
					b.wantFloatings("gate")
					b.pass(10 * time.Minute)
					b.wantFloatings("gate")
				})
			})
		}
	}
}

// Invariant: nothing leaks when a request is given up in the middle of making a
// floating address, also one that the rack makes late.
func TestATeardownOutlastsALateFloatingAddress(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		b.fault(simrack.Fault{
			Operation: "floating_ip_create", Count: 1, Action: simrack.ActionCommitLate, Delay: simrack.Duration(90 * time.Second),
		})

		lost := make(chan struct{}, 10)
		b.hook(&b.before, func(operation string) {
			if operation == "floating_ip_create" {
				lost <- struct{}{}
			}
		})

		b.start()
		b.ask(theRequest, class("project: demo\nexternal_ips: [{type: floating}]\n"))
		<-lost
		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantFloatings()
		b.pass(10 * time.Minute)
		b.wantFloatings()
		b.wantLeft(0, 0)
	})
}

// Invariant: a stranger's floating address of our name is never touched, however
// near its mark is to ours.
func TestAStrangersFloatingAddressOfOurNameIsLeftAlone(t *testing.T) {
	t.Parallel()

	mine := naming.Mark{Owner: "", Provider: testID, Kind: naming.KindIP, Key: naming.RequestKey(theRequest), Run: "0123abcd"}

	for name, change := range map[string]func(*naming.Mark) string{
		"no mark":          func(*naming.Mark) string { return "mine" },
		"another owner":    func(m *naming.Mark) string { m.Owner = naming.NewOwner(); return m.String() },
		"another provider": func(m *naming.Mark) string { m.Provider = "other"; return m.String() },
		"another request":  func(m *naming.Mark) string { m.Key = naming.RequestKey("other"); return m.String() },
		"another kind":     func(m *naming.Mark) string { m.Kind = naming.KindNIC; return m.String() },
		"words after it":   func(m *naming.Mark) string { return m.String() + " mine" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				mark := mine
				mark.Owner = b.owner

				their, err := b.rack.CreateFloatingIP(t.Context(), b.project.Id, oxide.FloatingIpCreate{
					Name: oxide.Name(naming.FloatingIP(0, theRequest)), Description: change(&mark),
				})
				b.ok(err)

				b.start()
				b.ask(theRequest, class("project: demo\nexternal_ips: [{type: floating}]\n"))
				b.untilStage(theRequest, stageFailed)

				want := fmt.Sprintf("a floating address named %q that is not ours is in project \"demo\": rename or delete it", their.Name)
				if got := b.status(theRequest).GetError(); got != want {
					t.Errorf("it says %q", got)
				}

				b.remove(theRequest)
				b.untilReleased(theRequest)

				if left := b.floatings()[string(their.Name)]; left.Id != their.Id || left.Description != their.Description {
					t.Errorf("left is %+v", left)
				}
			})
		})
	}
}

// Invariant: a teardown goes by the stored plan, whatever the class has become, and
// copes with what people did to the addresses.
func TestATeardownGoesByTheStoredPlan(t *testing.T) {
	t.Parallel()

	const text = "project: demo\nexternal_ips: [{type: floating}, {type: floating, floating_ips: [gate]}]\nnetwork_interfaces: [{addresses: [172.30.0.20]}]\n"

	own := naming.FloatingIP(0, theRequest)

	for name, meddle := range map[string]func(b *bench, elsewhere string){
		"nothing":      func(*bench, string) {},
		"own detached": func(b *bench, _ string) { b.detach(b.floatings()[own].Id) },
		"own deleted": func(b *bench, _ string) {
			b.detach(b.floatings()[own].Id)
			b.ok(b.rack.DeleteFloatingIP(b.t.Context(), b.floatings()[own].Id))
		},
		"own renamed":     func(b *bench, _ string) { b.rename(b.floatings()[own].Id, "mine-now") },
		"listed detached": func(b *bench, _ string) { b.detach(b.floatings()["gate"].Id) },
		"listed moved":    func(b *bench, to string) { b.detach(b.floatings()["gate"].Id); b.attach(b.floatings()["gate"].Id, to) },
		"listed renamed":  func(b *bench, _ string) { b.rename(b.floatings()["gate"].Id, "gate-2") },
		"class without":   func(b *bench, _ string) { b.reclass(theRequest, "project: demo\n") },
		"class wrong":     func(b *bench, _ string) { b.reclass(theRequest, "cpus: many\n") },
		"class lists own": func(b *bench, _ string) {
			b.reclass(theRequest, "project: demo\nexternal_ips: [{type: floating, floating_ips: ["+own+"]}]\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				b.floating("gate", "")
				elsewhere := b.stranger("theirs", "")
				b.start()
				b.provisioned(theRequest, text)
				meddle(b, elsewhere.Id)

				gate := b.floatings()["gate"]

				b.remove(theRequest)
				b.untilReleased(theRequest)
				b.wantLeft(1, 0)

				left := b.floatings()
				if len(left) != 1 || name != "listed renamed" && left["gate"].Id != gate.Id {
					t.Errorf("left are %v", left)
				}

				if name == "listed moved" && left["gate"].InstanceId != elsewhere.Id {
					t.Errorf("the listed one was taken from %s", elsewhere.Id)
				}
			})
		})
	}

	// It is ours, and somebody else's traffic goes over it: a person must decide.
	t.Run("own moved", func(t *testing.T) {
		t.Parallel()

		bubble(t, func(t *testing.T, b *bench) {
			b.floating("gate", "")
			elsewhere := b.stranger("theirs", "")
			b.start()
			b.provisioned(theRequest, text)

			id := b.floatings()[own].Id
			b.detach(id)
			b.attach(id, elsewhere.Id)
			b.remove(theRequest)
			b.pass(10 * time.Minute)

			want := fmt.Sprintf("floating address %q is attached to instance %s: detach it", own, elsewhere.Id)
			if b.released(theRequest) || !strings.Contains(b.logText(), want) {
				t.Errorf("released %t, log:\n%s", b.released(theRequest), b.logText())
			}

			if b.floatings()[own].InstanceId != elsewhere.Id {
				t.Error("it was taken from the other instance")
			}

			b.detach(id)
			b.untilReleased(theRequest)
			b.wantFloatings("gate")
		})
	})
}

// A floating address of ours that people delete before the instance is there is
// made again; one that they have put elsewhere is waited for.
func TestFloatingAddressesAreMadeSureOfBeforeTheInstance(t *testing.T) {
	t.Parallel()

	own := naming.FloatingIP(0, theRequest)

	bubble(t, func(t *testing.T, b *bench) {
		var first string

		times := 0
		b.hook(&b.before, func(operation string) {
			if operation != "instance_create" {
				return
			}

			switch times++; times {
			case 1:
				first = b.floatings()[own].Id
				b.ok(b.rack.DeleteFloatingIP(t.Context(), first))
			case 2:
				b.attach(b.floatings()[own].Id, b.stranger("theirs", "").Id)
			}
		})

		b.start()
		b.ask(theRequest, class("project: demo\nexternal_ips: [{type: floating}]\n"))
		b.until("it to say where the address is", func() bool {
			return strings.Contains(b.status(theRequest).GetStatus(), fmt.Sprintf("the floating address %q, made for this machine, is attached to instance", own))
		})
		b.detach(b.floatings()[own].Id)
		b.untilStage(theRequest, stageProvisioned)

		if second := b.floatings()[own].Id; second == first || second == "" {
			t.Errorf("the address is %q after %q", second, first)
		}

		b.remove(theRequest)
		b.untilReleased(theRequest)
		b.wantFloatings()
	})
}

// The rack's words for an address differ with its releases; a name in them counts
// only as a whole.
func TestAnAddressIsFoundInTheRacksWords(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]bool{
		`The IP address "10.0.0.2" is not available`:        true,
		`The IP address '10.0.0.2' is not available (rack)`: true,
		`the address is 10.0.0.2.`:                          true,
		`The IP address "10.0.0.20" is not available`:       false,
		`The IP address "110.0.0.2" is not available`:       false,
		"": false,
	} {
		if mentions(text, "10.0.0.2") != want {
			t.Errorf("%q: %t", text, !want)
		}
	}

	if !mentions(`fd00::9: taken`, "fd00::9") || mentions(`Floating IP "gate-1" is attached`, "gate") {
		t.Error("not as a whole")
	}
}

func (b *bench) rename(floating, name string) {
	b.t.Helper()

	_, err := b.sdk().FloatingIpUpdate(b.t.Context(), oxide.FloatingIpUpdateParams{
		FloatingIp: oxide.NameOrId(floating), Body: &oxide.FloatingIpUpdate{Name: oxide.Name(name)},
	})
	b.ok(err)
}

// reclass changes the class of a request by hand.
func (b *bench) reclass(id, text string) {
	b.t.Helper()

	_, err := safe.StateUpdateWithConflicts(b.t.Context(), b.admin, infra.NewMachineRequest(id).Metadata(), func(r *infra.MachineRequest) error {
		r.TypedSpec().Value.ProviderData = text

		return nil
	})
	b.ok(err)
}

// Invariant: requests that come and go at the same time never have the same entry
// of a list, in their plans or in the rack, and each machine has one.
func TestMachinesNeverShareAListedAddress(t *testing.T) {
	t.Parallel()

	const (
		requests = 8
		parts    = 5
	)

	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	bubble(t, func(t *testing.T, b *bench) {
		rng := rand.New(rand.NewPCG(seed, 1))

		var floats, fixed []string

		for i := range parts {
			b.floating(fmt.Sprintf("gate-%d", i), "")
			floats = append(floats, fmt.Sprintf("gate-%d", i))
			fixed = append(fixed, fmt.Sprintf("172.30.0.%d", 20+i))
		}

		text := fmt.Sprintf("project: demo\nnetwork_interfaces: [{addresses: [%s]}]\nexternal_ips: [{type: floating, floating_ips: [%s]}]\n",
			strings.Join(fixed, ", "), strings.Join(floats, ", "))

		their := b.stranger("theirs", "172.30.0.22")
		life := map[string]int{}
		serial := 0

		check := func() {
			has := map[share]string{}

			for id := range life {
				res := b.stored(id)
				if res == nil {
					continue
				}

				for _, s := range sharesOf(res.TypedSpec().Value.GetPlan()) {
					if other := has[s]; other != "" {
						t.Fatalf("%s and %s both have %v\n%s", id, other, s, b.logText())
					}

					has[s] = id
				}
			}
		}

		b.start()

		for range 60 {
			switch rng.IntN(4) {
			case 0, 1:
				if len(life) < requests {
					serial++
					id := fmt.Sprintf("churn-%d", serial)
					life[id] = serial
					b.ask(id, class(text))
				}
			case 2:
				for id := range life {
					b.remove(id)

					break
				}
			default:
				gate := b.floatings()[floats[rng.IntN(parts)]]

				switch gate.InstanceId {
				case "":
					b.attach(gate.Id, their.Id)
				case their.Id:
					b.detach(gate.Id)
				}
			}

			for range 1 + rng.IntN(20) {
				b.pass(time.Duration(rng.IntN(2000)) * time.Millisecond)
				check()
			}

			for id := range life {
				if b.stored(id) == nil && b.released(id) {
					delete(life, id)
				}
			}
		}

		if their := b.floatings(); len(their) != parts {
			t.Errorf("%d listed addresses are left", len(their))
		}

		for id := range life {
			b.remove(id)
		}

		for id := range life {
			b.untilReleased(id)
		}

		b.wantLeft(1, 0)
	})
}
