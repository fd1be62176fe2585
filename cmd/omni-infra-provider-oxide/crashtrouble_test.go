package main

import (
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// lostAndLateCreates: of three machines one is made although its answer was
// lost, one is made after its caller was told that the connection broke, and one
// is no longer wanted when the rack makes it.
func lostAndLateCreates() scenario {
	return scenario{
		name: "lost and late creates",
		// Longer than what a call may be late by here, twice over.
		env:    map[string]string{"SETTLE_TIME": "3s"},
		before: func(r *crashRun) { r.beginWith(1) },
		run: func(r *crashRun) {
			r.fault(rack.Fault{Action: rack.ActionLoseAnswer, Operation: "instance_create", Count: 1})
			r.fault(rack.Fault{Action: rack.ActionCommitLate, Operation: "instance_create", Count: 1, Delay: lateCreate})
			r.set("workers", crashProvider, 3)
			r.rest([]int{1}, plain("workers", 3))

			tries := r.Rack.CallCount("instance_create")
			r.fault(rack.Fault{Action: rack.ActionCommitLate, Operation: "instance_create", Count: 1, Delay: lateCreate})
			r.set("workers", crashProvider, 4)
			r.until("the late create", func() bool { return r.Rack.CallCount("instance_create") > tries })
			r.set("workers", crashProvider, 3)
			r.rest([]int{1}, plain("workers", 3))
		},
	}
}

// lateCreate is by how much, at the site's pace of twenty to one.
const lateCreate = rack.Duration(6 * time.Second)

// rackMaintenance: the rack refuses what changes anything, is away, and comes
// back, just when a machine is to be made, and again when one is to go.
func rackMaintenance() scenario {
	maintenance := rack.Fault{
		Condition: rack.ConditionMaintenance, Sagas: rack.Duration(16 * time.Second), Away: rack.Duration(12 * time.Second),
	}

	return scenario{
		name:    "rack maintenance",
		outages: true,
		before:  func(r *crashRun) { r.beginWith(1) },
		run: func(r *crashRun) {
			r.calls.once("instance_create", func() { r.fault(maintenance) })
			r.set("workers", crashProvider, 2)
			r.rest([]int{1}, plain("workers", 2))

			r.calls.once("instance_delete", func() { r.fault(maintenance) })
			r.set("workers", crashProvider, 1)
			r.rest([]int{1}, plain("workers", 1))
		},
	}
}

func (r *crashRun) fault(f rack.Fault) {
	if _, err := r.Rack.AddFault(f); err != nil {
		r.t.Errorf("adding a fault: %v", err)
	}
}
