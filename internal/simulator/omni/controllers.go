package omni

import (
	"context"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources"
	"github.com/siderolabs/omni/client/pkg/omni/resources/auth"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	"go.uber.org/zap"
)

// The names of Omni's own controllers, as they stand in owners and finalizers.
const (
	nameProviderCleanup      = "InfraProviderCleanupController"
	nameMachineProvision     = "MachineProvisionController"
	nameRequestSetStatus     = "MachineRequestSetStatusController"
	nameRequestStatusCleanup = "MachineRequestStatusCleanupController"
	nameClusterRequestStatus = "ClusterMachineRequestStatusController"
	nameConfigPatchRequest   = "ConfigPatchRequestController"
	nameMachine              = "MachineController"
	nameMachineCleanup       = "MachineCleanupController"
	nameRegistration         = "InfraMachineRegistrationController"
	nameMachineSetNode       = "MachineSetNodeController"
	nameMachineSetStatus     = "MachineSetStatusController"
	nameMachineConfigStatus  = "ClusterMachineConfigStatusController"
	nameMachineStatus        = "MachineStatusController"
	nameClusterMachineStatus = "ClusterMachineStatusController"
	nameCluster              = "ClusterController"
	nameCombinedStatus       = "InfraProviderStatusController"
	nameProviderJoinConfig   = "ProviderJoinConfigController"
)

// controllers bring the state to rest, again whenever it changed.
type controllers struct {
	server *Server
	state  state.State
	links  *links
	log    *zap.Logger

	// commands counts the commands to guests that are in flight.
	commands sync.WaitGroup
	// again is the earliest time at which a controller wants to look once more.
	again time.Time
	// complained holds the last error of each controller, which is logged once.
	complained map[string]string

	configs  map[resource.ID]generatedConfig
	farewell map[resource.ID]time.Time
	ownLinks map[resource.ID]bool
}

func newControllers(s *Server) *controllers {
	return &controllers{
		server: s, state: s.state, links: s.links, log: s.log, complained: map[string]string{},
		configs:  map[resource.ID]generatedConfig{},
		farewell: map[resource.ID]time.Time{}, ownLinks: map[resource.ID]bool{},
	}
}

// watched are the kinds whose changes wake the controllers.
var watched = []resource.Kind{
	infra.NewProvider("").Metadata(),
	infra.NewProviderStatus("").Metadata(),
	infra.NewProviderHealthStatus("").Metadata(),
	infra.NewMachineRequest("").Metadata(),
	infra.NewMachineRequestStatus("").Metadata(),
	infra.NewConfigPatchRequest("").Metadata(),
	omni.NewMachineRequestSet("").Metadata(),
	omni.NewMachineClass("").Metadata(),
	omni.NewMachine("").Metadata(),
	omni.NewCluster("").Metadata(),
	omni.NewMachineSet("").Metadata(),
	omni.NewClusterMachine("").Metadata(),
	omni.NewConfigPatch("").Metadata(),
	omni.NewClusterMachineConfigStatus("").Metadata(),
	resource.NewMetadata(resources.DefaultNamespace, omni.MachineSetNodeType, "", resource.VersionUndefined),
	siderolink.NewLink("", nil).Metadata(),
	auth.NewPublicKey("").Metadata(),
}

// run works until ctx ends.
func (c *controllers) run(ctx context.Context) {
	defer c.commands.Wait()

	events := make(chan []state.Event)

	for _, kind := range watched {
		if err := c.state.WatchKindAggregated(ctx, kind, events); err != nil {
			c.log.Error("a controller can not watch", zap.String("type", kind.Type()), zap.Error(err))

			return
		}
	}

	for {
		c.again = time.Time{}
		c.pass(ctx)

		if !c.rest(ctx, events) {
			return
		}
	}
}

// rest waits for a change or for the time when a controller wants to look
// again. It reports false when ctx ended.
func (c *controllers) rest(ctx context.Context, events <-chan []state.Event) bool {
	var due <-chan time.Time

	if !c.again.IsZero() {
		timer := time.NewTimer(time.Until(c.again))
		defer timer.Stop()

		due = timer.C
	}

	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-c.links.changed:
	case <-events:
	}

	// What came meanwhile is seen by the same pass.
	for {
		select {
		case <-events:
		default:
			return ctx.Err() == nil
		}
	}
}

// revisit asks for another pass after a while at the latest.
func (c *controllers) revisit(after time.Duration) {
	if at := time.Now().Add(after); c.again.IsZero() || at.Before(c.again) {
		c.again = at
	}
}

// pass runs each controller once, in the order in which one feeds the next.
func (c *controllers) pass(ctx context.Context) {
	for _, controller := range []struct {
		name      string
		reconcile func(context.Context) error
	}{
		{"providers", c.reconcileProviders},
		{"clusters", c.reconcileClusters},
		{"machine sets", c.reconcileMachineSets},
		{"machine request sets", c.reconcileRequestSets},
		{"machine request statuses", c.reconcileRequestStatuses},
		{"links", c.reconcileLinks},
		{"machines", c.reconcileMachines},
		{"config patch requests", c.reconcilePatchRequests},
		{"machine set nodes", c.reconcileMachineSetNodes},
		{"cluster machines", c.reconcileClusterMachines},
		{"cluster machine request statuses", c.reconcileClusterRequestStatuses},
		{"machine set statuses", c.reconcileMachineSetStatuses},
	} {
		c.settle(controller.name, controller.reconcile(ctx))
	}
}

// settle logs a controller's new error, and has a failed one run again.
// Conflicts are how writers of one store meet, and no news.
func (c *controllers) settle(name string, err error) {
	if err == nil {
		delete(c.complained, name)

		return
	}

	c.revisit(c.server.config.scaled(retryInterval))

	if state.IsConflictError(err) || c.complained[name] == err.Error() {
		return
	}

	c.complained[name] = err.Error()
	c.log.Warn("a controller failed", zap.String("controller", name), zap.Error(err))
}
