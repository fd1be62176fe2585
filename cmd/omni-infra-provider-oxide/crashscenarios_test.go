package main

import (
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// scenario is something that Omni asks for and the daemon may be killed at. What
// it has made is removed at its end, and all must be gone.
type scenario struct {
	name string
	site site.Config
	// env is what the daemon is set to besides.
	env map[string]string
	// replicas has a second daemon stand by, which takes over instead of a restart.
	replicas bool
	// outages says that the rack is away at times, so that nobody can look at it.
	outages bool
	// first and then are the binaries before and after the kill, empty for the one
	// under test.
	first, then string
	// before brings the site to where the scenario begins.
	before func(r *crashRun)
	// run asks for something and waits until it is there, killed or not.
	run func(r *crashRun)
}

// scenarios are all there are; a new one is a function like these, and a line here.
func scenarios() []scenario {
	return []scenario{
		firstMachine(),
		secondMachine(),
		scaleDown(),
		teardownDuringUpload(),
		disksAndInterfaces(),
		fixedAndFloating(),
		lostAndLateCreates(),
		rackMaintenance(),
		twoReplicas(),
		unusedImage(),
		importBesideTheDaemon(),
		importKilled(),
		offboardKilled(),
		setGroups(),
	}
}

func firstMachine() scenario {
	return scenario{
		name:   "first machine",
		before: func(*crashRun) {},
		run: func(r *crashRun) {
			r.begin()
			r.register()
			r.set("workers", crashProvider, 1)
			r.rest([]int{1}, plain("workers", 1))
		},
	}
}

func secondMachine() scenario {
	return scenario{
		name:   "second machine",
		before: func(r *crashRun) { r.beginWith(1) },
		run: func(r *crashRun) {
			r.set("workers", crashProvider, 2)
			r.rest([]int{1}, plain("workers", 2))
		},
	}
}

func scaleDown() scenario {
	return scenario{
		name:   "scale down",
		before: func(r *crashRun) { r.beginWith(2) },
		run: func(r *crashRun) {
			r.set("workers", crashProvider, 1)
			r.rest([]int{1}, plain("workers", 1))
		},
	}
}

func teardownDuringUpload() scenario {
	return scenario{
		name:   "teardown during upload",
		site:   site.Config{Factory: factory.Config{Rate: 4 << 20}},
		before: func(r *crashRun) { r.begin(); r.register() },
		run: func(r *crashRun) {
			r.set("workers", crashProvider, 1)
			r.until("the upload to be under way", func() bool { return r.Rack.CallCount("disk_bulk_write_import") > 3 })
			r.set("workers", crashProvider, 0)
			// The upload goes on for others; after a kill nobody waits for it.
			r.rest([]int{0, 1})

			// Nothing that it left may be in the way of the next one.
			r.calls.observe(false)
			r.set("workers", crashProvider, 1)
			r.rest([]int{1}, plain("workers", 1))
		},
	}
}

func disksAndInterfaces() scenario {
	return scenario{
		name:   "disks and interfaces",
		before: func(r *crashRun) { r.addSubnet("storage"); r.beginWith(1) },
		run: func(r *crashRun) {
			r.set("wide", crashProvider, 1, func(s *specs.MachineRequestSetSpec) {
				s.ProviderData = crashClass("disks: [{size: 2}, {size: 3, type: local}]\n" +
					"network_interfaces: [{subnet_name: default}, {subnet_name: storage}]\n")
			})
			r.rest([]int{1}, plain("workers", 1),
				machines{set: "wide", count: 1, disks: map[string]int{"boot": 10, "data0": 2, "data1": 3}, nics: 2})
		},
	}
}

func twoReplicas() scenario {
	return scenario{
		name:     "two replicas",
		replicas: true,
		before:   func(r *crashRun) { r.begin(); r.register() },
		run: func(r *crashRun) {
			r.set("workers", crashProvider, 2)
			r.rest([]int{1}, plain("workers", 2))
			r.set("workers", crashProvider, 1)
			r.rest([]int{1}, plain("workers", 1))
		},
	}
}

func (r *crashRun) register() {
	r.until("the provider to register", func() bool {
		ok, err := r.Operator.ProviderRegistered(r.t.Context(), crashProvider)

		return err == nil && ok
	})
}

// beginWith starts the daemon and waits for n machines.
func (r *crashRun) beginWith(n int) {
	r.begin()
	r.register()
	r.set("workers", crashProvider, int32(n))
	r.rest([]int{1}, plain("workers", n))
}

func (r *crashRun) addSubnet(name string) {
	must(r.Operator.Rack().VpcSubnetCreate(r.t.Context(), oxide.VpcSubnetCreateParams{
		Project: oxide.NameOrId(site.Project), Vpc: "default",
		Body: &oxide.VpcSubnetCreate{Name: oxide.Name(name), Description: "A second one.", Ipv4Block: "172.30.4.0/22"},
	}))(r.t)
}
