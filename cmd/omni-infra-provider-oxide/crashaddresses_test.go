package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// addresses are what each machine of a set has besides its interfaces.
type addresses struct {
	// fixed is the private address of the first interface, empty for any.
	fixed string
	// made is how many floating addresses were made for the machine, the first ones
	// of its class; listed are the names of those that it has from lists.
	made   int
	listed []string
}

func fixedAndFloating() scenario {
	return scenario{
		name:   "fixed and floating addresses",
		before: func(r *crashRun) { r.addListed("gate"); r.beginWith(1) },
		run: func(r *crashRun) {
			r.set("wide", crashProvider, 1, func(s *specs.MachineRequestSetSpec) {
				s.ProviderData = crashClass("network_interfaces: [{addresses: [172.30.0.40]}]\n" +
					"external_ips: [{type: floating}, {type: floating, floating_ips: [gate]}]\n")
			})
			r.rest([]int{1}, plain("workers", 1), machines{
				set: "wide", count: 1, disks: map[string]int{"boot": 10}, nics: 1,
				addresses: addresses{fixed: "172.30.0.40", made: 1, listed: []string{"gate"}},
			})

			r.set("wide", crashProvider, 0)
			r.rest([]int{1}, plain("workers", 1))
			r.checkDetached()
		},
	}
}

// addListed makes a floating address that classes list.
func (r *crashRun) addListed(name string) {
	r.t.Helper()

	must(r.Operator.Rack().FloatingIpCreate(r.t.Context(), oxide.FloatingIpCreateParams{
		Project: oxide.NameOrId(site.Project), Body: &oxide.FloatingIpCreate{Name: oxide.Name(name), Description: "Made by people."},
	}))(r.t)

	r.foreign = describe(r.t, r.inventory())
}

// checkAddresses holds the addresses of an instance against what was asked for.
func (r *crashRun) checkAddresses(instance, request string, nics []oxide.InstanceNetworkInterface, want addresses) {
	r.t.Helper()

	stack, err := json.Marshal(nics[0].IpStack)
	if err != nil {
		r.t.Fatal(err)
	}

	if want.fixed != "" && !strings.Contains(string(stack), `"ip":"`+want.fixed+`"`) {
		r.t.Errorf("the interface of %s has %s", request, stack)
	}

	wanted := slices.Clone(want.listed)
	for i := range want.made {
		wanted = append(wanted, naming.FloatingIP(i, request))
	}

	var got []string

	for _, f := range r.inventory().FloatingIPs {
		if f.InstanceId == instance {
			got = append(got, string(f.Name))
		}
	}

	slices.Sort(wanted)
	slices.Sort(got)

	if !slices.Equal(got, wanted) {
		r.t.Errorf("%s has the floating addresses %q, must have %q", request, got, wanted)
	}
}

// checkDetached: what classes list is there for others when no machine has it.
func (r *crashRun) checkDetached() {
	r.t.Helper()

	for _, f := range r.inventory().FloatingIPs {
		if f.InstanceId != "" {
			r.t.Errorf("floating address %s is attached to instance %s", f.Name, f.InstanceId)
		}
	}
}
