package provider

import (
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"go.uber.org/zap"
)

const (
	// stepAnnotation is where the SDK stores the last step of a request.
	stepAnnotation = "infra." + omni.SystemLabelPrefix + "step"
	// sdkOwner is who owns the resources that the SDK writes, with the provider
	// ID before it; also the name of its finalizer.
	sdkController = ".ProvisionController"
)

// repairSteps sets states whose stored step this version does not know back to
// the first step. The SDK would skip every step of such a request and report it
// provisioned with no machine behind it. Finished steps do nothing when they
// run again.
func repairSteps(ctx context.Context, logger *zap.Logger, st state.State) error {
	all, err := safe.StateList[*Instance](ctx, st, metadata(instanceName, ""))
	if err != nil {
		return fmt.Errorf("listing the states of machine requests in Omni: %w", err)
	}

	known := map[string]bool{"": true, stepPlan: true, stepImage: true, stepInstance: true, stepConfig: true, stepStart: true}

	for res := range all.All() {
		stored, _ := res.Metadata().Annotations().Get(stepAnnotation)
		if known[stored] {
			continue
		}

		logger.Warn("the stored step is unknown to this version, the request begins again at its first step",
			zap.String("omni.request.id", res.Metadata().ID()), zap.String("step", stored))

		_, err := safe.StateUpdateWithConflicts(ctx, st, res.Metadata(), func(r *Instance) error {
			r.Metadata().Annotations().Set(stepAnnotation, stepPlan)

			return nil
		}, state.WithUpdateOwner(providerID()+sdkController), state.WithExpectedPhaseAny())
		if err != nil && !state.IsNotFoundError(err) {
			return fmt.Errorf("setting the step of request %s back: %w", res.Metadata().ID(), err)
		}
	}

	return nil
}
