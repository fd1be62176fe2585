package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
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

// stepAliases lead from each step name that was retired to the one that now does
// its work. That is the only way to retire one: states keep the names of the
// release that wrote them.
var stepAliases = map[string]string{}

// stepOf is the step of this version at which a state goes on, empty when its
// stored one is unknown.
func stepOf(res *Instance) string {
	stored, _ := res.Metadata().Annotations().Get(stepAnnotation)
	if to, retired := stepAliases[stored]; retired {
		return to
	}

	switch stored {
	case "":
		return stepPlan
	case stepPlan, stepImage, stepInstance, stepConfig, stepStart:
		return stored
	default:
		return ""
	}
}

// repairSteps sets states of requests that are not provisioned, and whose stored
// step this version does not know, back to the first step. The SDK would skip
// every step of such a request and report it provisioned with no machine behind
// it. Finished steps do nothing when they run again. A retired step becomes the
// one that took its place.
func repairSteps(ctx context.Context, logger *zap.Logger, st state.State, states []*Instance) error {
	var strange []*Instance

	for _, res := range states {
		if stored, _ := res.Metadata().Annotations().Get(stepAnnotation); stored != "" && stepOf(res) != stored {
			strange = append(strange, res)
		}
	}

	if len(strange) == 0 {
		return nil
	}

	done, err := provisioned(ctx, st)
	if err != nil {
		return err
	}

	for _, res := range strange {
		if id := res.Metadata().ID(); !done[id] {
			if err := setStep(ctx, logger, st, res); err != nil {
				return fmt.Errorf("setting the step of request %s: %w", id, err)
			}
		}
	}

	return nil
}

func setStep(ctx context.Context, logger *zap.Logger, st state.State, res *Instance) error {
	stored, _ := res.Metadata().Annotations().Get(stepAnnotation)

	step := stepOf(res)
	if step == "" {
		step = stepPlan
	}

	_, err := safe.StateUpdateWithConflicts(ctx, st, res.Metadata(), func(r *Instance) error {
		r.Metadata().Annotations().Set(stepAnnotation, step)

		return nil
	}, state.WithUpdateOwner(providerID()+sdkController), state.WithExpectedPhaseAny())
	if err != nil {
		if state.IsNotFoundError(err) {
			return nil
		}

		return err
	}

	logger.Info("set the stored step of a request", zap.String("omni.request.id", res.Metadata().ID()),
		zap.String("step.before", stored), zap.String("step", step))

	return nil
}

// provisioned are the requests that Omni was told to be done: the SDK runs no
// step of theirs.
func provisioned(ctx context.Context, st state.State) (map[resource.ID]bool, error) {
	all, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, st)
	if err != nil {
		return nil, fmt.Errorf("listing the statuses of machine requests in Omni: %w", err)
	}

	done := map[resource.ID]bool{}

	for s := range all.All() {
		done[s.Metadata().ID()] = s.TypedSpec().Value.GetStage() == omnispecs.MachineRequestStatusSpec_PROVISIONED
	}

	return done, nil
}

// listStates lists what is stored for machine requests: our states, and those of
// the published provider.
func listStates(ctx context.Context, st state.State) ([]*Instance, []*Published, error) {
	states, err := safe.StateList[*Instance](ctx, st, metadata(instanceName, ""))
	if err != nil {
		return nil, nil, fmt.Errorf("listing the states of machine requests in Omni: %w", err)
	}

	theirs, err := safe.StateList[*Published](ctx, st, metadata(publishedName, ""))
	if err != nil {
		return nil, nil, fmt.Errorf("listing the states of the published provider in Omni: %w", err)
	}

	return slices.Collect(states.All()), slices.Collect(theirs.All()), nil
}
