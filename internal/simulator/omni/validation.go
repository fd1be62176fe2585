package omni

import (
	"context"
	"fmt"
	"unicode"

	"github.com/blang/semver/v4"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The bounds of metadata and kernel arguments.
const (
	maxID         = 1024
	maxLabelKey   = 1024
	maxLabelValue = 16 << 10
	maxLabels     = 256
	maxKernelArgs = 64
	maxKernelArg  = 256
)

// validator refuses what Omni refuses when a user or a provider writes it. The
// controllers write without it.
type validator struct{ state state.State }

// invalid is how Omni words a refusal.
func invalid(err error) error {
	if err == nil {
		return nil
	}

	if _, ok := status.FromError(err); ok {
		return err
	}

	return status.Errorf(codes.InvalidArgument, "failed to validate: %s", err)
}

func (v *validator) create(ctx context.Context, res resource.Resource) error {
	if err := checkMetadata(res.Metadata()); err != nil {
		return invalid(err)
	}

	switch r := res.(type) {
	case *infra.MachineRequest:
		if _, err := semver.ParseTolerant(r.TypedSpec().Value.GetTalosVersion()); err != nil {
			return invalid(fmt.Errorf("invalid talos version format: %q", r.TypedSpec().Value.GetTalosVersion()))
		}
	case *omni.MachineClass:
		return invalid(v.machineClass(ctx, nil, r))
	case *omni.MachineRequestSet:
		return invalid(v.machineRequestSet(ctx, r))
	case *omni.MachineSet:
		return invalid(v.machineSet(ctx, r))
	}

	return nil
}

func (v *validator) update(ctx context.Context, old, res resource.Resource) error {
	if err := checkMetadata(res.Metadata()); err != nil {
		return invalid(err)
	}

	switch r := res.(type) {
	case *infra.MachineRequest:
		if was, ok := old.(*infra.MachineRequest); ok && !was.TypedSpec().Value.EqualVT(r.TypedSpec().Value) {
			return invalid(errImmutableRequest)
		}
	case *omni.MachineClass:
		was, _ := old.(*omni.MachineClass)

		return invalid(v.machineClass(ctx, was, r))
	case *omni.MachineRequestSet:
		return invalid(v.machineRequestSet(ctx, r))
	case *omni.MachineSet:
		if running(r) {
			return invalid(v.machineSet(ctx, r))
		}
	}

	return nil
}

func (v *validator) destroy(ctx context.Context, res resource.Resource) error {
	switch r := res.(type) {
	case *omni.MachineClass:
		return invalid(v.machineClassUnused(ctx, r))
	case *infra.Provider:
		return invalid(v.providerUnused(ctx, r))
	default:
		return nil
	}
}

// checkMetadata bounds IDs, labels and annotations.
func checkMetadata(md *resource.Metadata) error {
	if md.ID() == "" {
		return fmt.Errorf("resource ID can not be empty")
	}

	if err := checkText("resource ID", md.ID(), maxID); err != nil {
		return err
	}

	for what, values := range map[string]map[string]string{"label": md.Labels().Raw(), "annotation": md.Annotations().Raw()} {
		if len(values) > maxLabels {
			return fmt.Errorf("too many %ss: %d, at most %d are allowed", what, len(values), maxLabels)
		}

		for key, value := range values {
			if err := checkText(what+" key", key, maxLabelKey); err != nil {
				return err
			}

			if len(value) > maxLabelValue {
				return fmt.Errorf("%s %q is too long: %d bytes, at most %d are allowed", what, key, len(value), maxLabelValue)
			}
		}
	}

	return nil
}

func checkText(what, text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("%s is too long: %d bytes, at most %d are allowed", what, len(text), limit)
	}

	for _, r := range text {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s %q contains control characters", what, text)
		}
	}

	return nil
}

func checkKernelArgs(what string, args []string) error {
	if len(args) > maxKernelArgs {
		return fmt.Errorf("too many %s: %d, at most %d are allowed", what, len(args), maxKernelArgs)
	}

	for _, arg := range args {
		if err := checkText(what, arg, maxKernelArg); err != nil {
			return err
		}
	}

	return nil
}
