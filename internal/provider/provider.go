// Package provider is the daemon's work for Omni: the stored resources, the
// steps that bring a machine request to a running instance, Deprovision, and
// the supervision of the SDK that calls them.
//
// The steps are, in order:
//
//	plan      writes down what will be made, resolved to what exists
//	image     waits for the Talos image in the rack
//	instance  creates the instance, stopped, and records its IDs
//	config    writes the config patches into Omni
//	start     starts the instance and sees it running
//
// The SDK runs a step inside the update of the request's state: what a step
// changes in the state is stored when the step returns nil or a requeue error,
// and lost with any other error. It never steps back, so every step makes sure
// of what the earlier ones promised.
package provider

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/cosi-project/runtime/pkg/controller"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/pkg/infra/provision"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/backoff"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
)

// The step names are stored with each request: they are frozen.
const (
	stepPlan     = "plan"
	stepImage    = "image"
	stepInstance = "instance"
	stepConfig   = "config"
	stepStart    = "start"
)

// Silo is what planning asks of the rack.
type Silo interface {
	Me(ctx context.Context) (*oxide.CurrentUser, error)
	ViewProject(ctx context.Context, nameOrID string) (*oxide.Project, error)
	ListProjects(ctx context.Context) ([]oxide.Project, error)
	ViewVPC(ctx context.Context, projectID, nameOrID string) (*oxide.Vpc, error)
	ViewSubnet(ctx context.Context, vpcID, nameOrID string) (*oxide.VpcSubnet, error)
	ViewSubnetOf(ctx context.Context, projectID, vpcName, name string) (*oxide.VpcSubnet, error)
	ViewAntiAffinityGroup(ctx context.Context, projectID, nameOrID string) (*oxide.AntiAffinityGroup, error)
	Addresses
	ListAntiAffinityGroupMembers(ctx context.Context, groupID string) ([]oxide.AntiAffinityGroupMember, error)
	Utilization(ctx context.Context) (*oxide.Utilization, error)
}

// Images hands out images.
type Images interface {
	Ask(ctx context.Context, want image.Want) (image.Status, error)
	Forget(imageID string)
}

// Machines makes and removes instances; *instance.Machines.
type Machines interface {
	Create(ctx context.Context, spec *InstanceState, userData string) error
	Start(ctx context.Context, spec *InstanceState) error
	Forget(ctx context.Context, spec *InstanceState) error
	Remove(ctx context.Context, spec *InstanceState) error
	Arrived(requestID string, at time.Time)
	CreateDue(spec *InstanceState) bool
	Settled(spec *InstanceState) error
	Ours(description, requestID string) bool
}

var _ Machines = (*instance.Machines)(nil)

// Provisioner implements the SDK's provision.Provisioner.
type Provisioner struct {
	// State answers the state of the current Omni client.
	State    func() state.State
	Silo     Silo
	Images   Images
	Machines Machines
	// Factory answers the base URL of the image factory.
	Factory func(ctx context.Context) (string, error)
	// Owner stands in every plan.
	Owner string

	teardowns *teardowns
	identity  siloIdentity
	allotted  allotment
	refusals  refusals
	looks     looks
	// previewing plans also what the quota has no room for: a person sees that.
	previewing bool
	gauge      gauge
	turns      turns
	// missing has one of many requests that name something which is not in the rack
	// look for all.
	missing backoff.Shared
	// lacking are the requests that lack something.
	lacking lacking
	// poolSeen is when a default pool was last seen.
	poolSeen atomic.Pointer[time.Time]
}

// Context is what the SDK hands to a step.
type Context = provision.Context[*Instance]

// ProvisionSteps implements provision.Provisioner.
func (p *Provisioner) ProvisionSteps() []provision.Step[*Instance] {
	return []provision.Step[*Instance]{
		p.step(stepPlan, p.plan),
		p.step(stepImage, p.planned(p.image)),
		p.step(stepInstance, p.planned(p.instance)),
		p.step(stepConfig, p.planned(p.config)),
		p.step(stepStart, p.planned(p.start)),
	}
}

// planned runs a step only for a plan that is this process's to carry out: the
// SDK resumes at the stored step, whatever version and whatever rack the last
// process had.
func (p *Provisioner) planned(run stepFunc) stepFunc {
	return func(ctx context.Context, logger *zap.Logger, pctx Context) error {
		plan := pctx.State.TypedSpec().Value.GetPlan()
		if plan == nil {
			return errNoPlan
		}

		if err := p.mine(ctx, plan, pctx.GetRequestID()); err != nil {
			return err
		}

		return run(ctx, logger, pctx)
	}
}

// idsOf are the IDs of what a state has so far, for a line of the log that tells
// of its machine.
func idsOf(spec *InstanceState, more ...zap.Field) []zap.Field {
	fields := more

	if id := spec.GetImage().GetId(); id != "" {
		fields = append(fields, zap.String("oxide.image.id", id))
	}

	if id := spec.GetInstanceId(); id != "" {
		fields = append(fields, zap.String("oxide.instance.id", id))
	}

	return fields
}

// mine checks a stored plan: whose it is, its format, its owner and its silo.
func (p *Provisioner) mine(ctx context.Context, plan *specs.Plan, requestID string) error {
	if err := checkFormat(plan); err != nil {
		return err
	}

	if otherRequest(plan, requestID) {
		return &instance.Mend{Reason: fmt.Sprintf("the stored plan is that of request %q: its machine is left alone", plan.GetRequestId())}
	}

	if plan.GetOwner() != "" && plan.GetOwner() != p.Owner {
		return &instance.Mend{Reason: fmt.Sprintf("the machine was planned by owner %s, and the owner stored in Omni is %s: put that one back",
			plan.GetOwner(), p.Owner)}
	}

	return p.sameSilo(ctx, plan)
}

type stepFunc func(ctx context.Context, logger *zap.Logger, pctx Context) error

// step wraps a step: its error is turned into what the SDK and the user need,
// and a panic into an error. The SDK would retry a panic too, but show nothing.
func (p *Provisioner) step(name string, run stepFunc) provision.Step[*Instance] {
	return provision.NewStep(name, func(ctx context.Context, logger *zap.Logger, pctx Context) (err error) {
		logger = logger.With(zap.String("omni.request.id", pctx.GetRequestID()), zap.String("step", name))

		end := p.gauge.begin(name)

		var cause error

		defer func() {
			if r := recover(); r != nil {
				p.gauge.panicked()
				logger.Error(stepPanicked, zap.NamedError("panic", fmt.Errorf("%v", r)), zap.ByteString("stack", debug.Stack()))
				err = outcome(ctx, fmt.Errorf("internal error in step %q: please report it", name))
			}

			end(cause, err)
		}()

		if !p.turns.begin(ctx) {
			return outcome(ctx, context.Cause(ctx))
		}

		defer p.turns.end()

		cause = run(ctx, logger, pctx)

		return outcome(ctx, cause)
	})
}

// Deprovision implements provision.Provisioner. It is called again until it
// returns nil, and what it changes in the state is not stored.
func (p *Provisioner) Deprovision(ctx context.Context, logger *zap.Logger, res *Instance, request *infra.MachineRequest) (err error) {
	logger = logger.With(zap.String("omni.request.id", request.Metadata().ID()))
	end := p.gauge.begin(removing)

	var cause error

	defer func() { end(cause, err) }()

	p.teardowns.begin(request.Metadata().ID())

	defer func() {
		if r := recover(); r != nil {
			p.gauge.panicked()
			logger.Error(teardownPanicked, zap.NamedError("panic", fmt.Errorf("%v", r)), zap.ByteString("stack", debug.Stack()))
			err = outcome(ctx, fmt.Errorf("internal error in teardown: please report it"))
		}
	}()

	if !p.turns.begin(ctx) {
		return outcome(ctx, context.Cause(ctx))
	}

	defer p.turns.end()

	cause = p.deprovision(ctx, logger, res, request)
	if cause == nil {
		p.lacking.forget(request.Metadata().ID())
		p.gauge.removed(p.teardowns.done(request.Metadata().ID()))

		return nil
	}

	err = outcome(ctx, cause)

	if reason := reasonOf(err); reason != "" && ctx.Err() == nil {
		p.teardowns.wait(logger, request.Metadata().ID(), reason, isA[*mending](err))
	}

	// The SDK has no interval of its own for a teardown that fails: without one
	// the runtime would try twice a second at first.
	if !isA[*controller.RequeueError](err) {
		return provision.NewRetryError(err, mendTeardown)
	}

	return err
}

// reasonOf is the text of an error as outcome gives it, empty for a mere
// interval.
func reasonOf(err error) string {
	if r, ok := errors.AsType[*controller.RequeueError](err); ok {
		if err = r.Err(); err == nil {
			return ""
		}
	}

	return err.Error()
}

// mendTeardown is how often a teardown is tried that a person must mend.
const mendTeardown = 30 * time.Second
