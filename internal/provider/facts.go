package provider

import (
	"errors"
	"expvar"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/metrics"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Meter counts what the steps and removals do; *metrics.Metrics.
type Meter interface {
	// Step is told of each run of a step, and of a removal as the step "remove":
	// whether it was done, is waiting or failed.
	Step(step, result string, took time.Duration)
	// Retry is told of what is done again because something failed, and the class
	// of that.
	Retry(what, class string)
	// Provisioned is told of a machine that runs, and the time since its plan.
	Provisioned(took time.Duration)
	// Removed is told of a machine of which nothing is left, and the time since the
	// first try.
	Removed(took time.Duration)
	Panicked()
}

var _ Meter = (*metrics.Metrics)(nil)

// gauge is what the provisioner counts, whoever reads it.
type gauge struct {
	meter Meter
	busy  atomic.Int64
}

// begin notes that a worker is at work, until the function that it returns is
// called with the error that the step ended with, before and after outcome.
func (g *gauge) begin(step string) func(cause, err error) {
	began := time.Now()
	g.busy.Add(1)

	return func(cause, err error) {
		g.busy.Add(-1)

		if g.meter == nil {
			return
		}

		what, result := "step", "failed"
		if step == removing {
			what = "removal"
		}

		switch {
		case err == nil:
			result = "done"
		case isA[*mending](err):
		default:
			result = "waiting"
		}

		g.meter.Step(step, result, time.Since(began))

		if e, ok := errors.AsType[*rack.Error](cause); ok {
			g.meter.Retry(what, e.Class.String())
		} else if result == "failed" {
			g.meter.Retry(what, "other")
		}
	}
}

func (g *gauge) panicked() {
	if g.meter != nil {
		g.meter.Panicked()
	}
}

// provisioned counts a machine that was planned at a time; one that an older
// version planned may not say.
func (g *gauge) provisioned(planned *timestamppb.Timestamp) {
	if g.meter != nil && planned != nil {
		g.meter.Provisioned(max(time.Since(planned.AsTime()), 0))
	}
}

func (g *gauge) removed(began time.Time) {
	if g.meter != nil && !began.IsZero() {
		g.meter.Removed(time.Since(began))
	}
}

// removing is the name of a removal among the steps that are counted.
const removing = "remove"

// scene is what of the daemon's work is read from outside of it. Each part is
// replaced as a whole.
type scene struct {
	work   atomic.Pointer[working]
	rounds atomic.Pointer[round]

	mu       sync.Mutex
	orphans  map[string]int
	lastLook time.Time
	braked   bool
}

// working is what a tenure works with.
type working struct {
	gauge     *gauge
	machines  *instance.Machines
	images    *image.Manager
	teardowns *teardowns
	identity  *siloIdentity
}

// round is what the last round of the watcher saw in Omni.
type round struct {
	stages, steps map[string]int
}

func (s *scene) looked(orphans map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.orphans, s.lastLook = orphans, time.Now()
}

func (s *scene) brake(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.braked = on
}

// leave forgets what only the process that works knows.
func (s *scene) leave() {
	s.rounds.Store(nil)

	s.mu.Lock()
	defer s.mu.Unlock()

	s.orphans, s.braked, s.lastLook = nil, false, time.Time{}
}

// The stages by which requests are counted.
const (
	stageNew          = "new"
	stageProvisioning = "provisioning"
	stageDone         = "provisioned"
	stageBroken       = "failed"
	stageRemoving     = "removing"
)

// stageName is the stage of a request for people: running says that it is not
// being removed.
func stageName(running bool, stage omnispecs.MachineRequestStatusSpec_Stage) string {
	switch {
	case !running:
		return stageRemoving
	case stage == omnispecs.MachineRequestStatusSpec_PROVISIONING:
		return stageProvisioning
	case stage == omnispecs.MachineRequestStatusSpec_PROVISIONED:
		return stageDone
	case stage == omnispecs.MachineRequestStatusSpec_FAILED:
		return stageBroken
	default:
		return stageNew
	}
}

// countRequests counts requests by stage, and those that are not done by step.
func countRequests(
	running map[resource.ID]bool, statuses safe.List[*infra.MachineRequestStatus], states []*Instance,
) *round {
	stages := map[resource.ID]omnispecs.MachineRequestStatusSpec_Stage{}
	for s := range statuses.All() {
		stages[s.Metadata().ID()] = s.TypedSpec().Value.GetStage()
	}

	at := map[resource.ID]string{}
	for _, res := range states {
		at[res.Metadata().ID()] = stepOf(res)
	}

	r := &round{stages: map[string]int{}, steps: map[string]int{}}

	for id, runs := range running {
		stage := stageName(runs, stages[id])
		r.stages[stage]++

		if step, planned := at[id]; planned && (stage == stageProvisioning || stage == stageBroken) {
			r.steps[step]++
		}
	}

	return r
}

// Facts are what is true of the daemon now. It makes no call.
func (d *Daemon) Facts() metrics.Facts {
	f := metrics.Facts{
		Ready: d.opts.Board.Ready(), Needs: d.opts.Board.Needs(), Notes: d.opts.Board.Subjects(),
		Workers: d.opts.Concurrency, QueueLength: queueLength(), Holding: true, Odd: map[string]int{},
	}

	if d.keeper != nil {
		role := d.keeper.Role()
		f.Holding, f.Term = role.Holding, role.Term
	}

	if r := d.scene.rounds.Load(); r != nil {
		f.Stages, f.Steps = r.stages, r.steps
		d.machineFacts(&f)
	}

	if w := d.scene.work.Load(); w != nil {
		f.Busy = int(w.gauge.busy.Load())
		f.CreatesTaken, f.CreatesLimit, f.CreatesQueued = w.machines.Creates()
		f.RemovalsLater, f.RemovalsMend = w.teardowns.counts()
		f.Jobs = map[string]int{}

		for _, j := range w.images.Jobs() {
			f.Jobs[string(j.Phase)]++
		}
	}

	d.scene.mu.Lock()
	defer d.scene.mu.Unlock()

	f.Orphans, f.Brake, f.LastLook = d.scene.orphans, d.scene.braked, d.scene.lastLook

	return f
}

func (d *Daemon) machineFacts(f *metrics.Facts) {
	c := d.MachineCounts()
	f.Instances = c.States
	f.Machines = map[string]int{
		"well": max(c.Watched-c.Stopped-c.Failed-c.Vanished-c.Unjoined, 0), "stopped": c.Stopped, "failed": c.Failed,
		"vanished": c.Vanished, "unjoined": c.Unjoined, "unreadable": c.Unreadable,
	}

	for oddity, n := range d.StateCounts() {
		f.Odd[string(oddity)] = n
	}
}

// queueLength is that of the SDK's controller, which the COSI runtime publishes
// for the whole process.
func queueLength() int {
	all, ok := expvar.Get("qcontroller_queue_length").(*expvar.Map)
	if !ok {
		return 0
	}

	n, ok := all.Get(providerID() + sdkController).(*expvar.Int)
	if !ok {
		return 0
	}

	return int(n.Value())
}
