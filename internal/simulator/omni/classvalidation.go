package omni

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
)

var errImmutableRequest = errors.New("machine request spec is immutable")

// machineClass checks a class. Its provider data is checked against the schema
// when it is new or changed, not when the schema changed since.
func (v *validator) machineClass(ctx context.Context, old, class *omni.MachineClass) error {
	spec := class.TypedSpec().Value
	provision := spec.GetAutoProvision()

	if provision == nil {
		if len(spec.GetMatchLabels()) == 0 {
			return errors.New("machine class should either have auto provision or match labels set")
		}

		return nil
	}

	if len(spec.GetMatchLabels()) > 0 {
		return errors.New("can't set both auto provision and match labels at the same time")
	}

	if provision.GetProviderId() == "" {
		return errors.New("providerID can not be empty")
	}

	if old == nil || old.TypedSpec().Value.GetAutoProvision().GetProviderData() != provision.GetProviderData() {
		if err := v.providerData(ctx, provision.GetProviderId(), provision.GetProviderData()); err != nil {
			return err
		}
	}

	return checkKernelArgs("auto provision kernel args", provision.GetKernelArgs())
}

func (v *validator) machineClassUnused(ctx context.Context, class *omni.MachineClass) error {
	sets, err := safe.StateListAll[*omni.MachineSet](ctx, v.state)
	if err != nil {
		return err
	}

	var users []string

	for set := range sets.All() {
		if allocation := omni.GetMachineAllocation(set); allocation != nil && allocation.GetName() == class.Metadata().ID() {
			users = append(users, set.Metadata().ID())
		}
	}

	if len(users) > 0 {
		return fmt.Errorf("can not delete the machine class as it is still in use by machine sets: %s", strings.Join(users, ", "))
	}

	return nil
}

// machineRequestSet checks a set; unlike a request made by hand, its Talos
// version must be one that Omni offers, and so has no v. Its provider data is
// not held against the schema, unlike that of a class.
func (v *validator) machineRequestSet(ctx context.Context, set *omni.MachineRequestSet) error {
	spec := set.TypedSpec().Value

	if spec.GetProviderId() == "" {
		return errors.New("provider id can not be empty")
	}

	if err := checkKernelArgs("kernel args", spec.GetKernelArgs()); err != nil {
		return err
	}

	if _, ok, err := get[*omni.TalosVersion](ctx, v.state, omni.NewTalosVersion(spec.GetTalosVersion()).Metadata()); err != nil || !ok {
		return errors.Join(err, fmt.Errorf("talos version %q is not supported: resource TalosVersions.omni.sidero.dev(default/%s) doesn't exist",
			spec.GetTalosVersion(), spec.GetTalosVersion()))
	}

	return nil
}

func (v *validator) machineSet(ctx context.Context, set *omni.MachineSet) error {
	if label(set, omni.LabelCluster) == "" {
		return errors.New("cluster label is missing")
	}

	_, controlPlane := set.Metadata().Labels().Get(omni.LabelControlPlaneRole)
	if _, worker := set.Metadata().Labels().Get(omni.LabelWorkerRole); worker == controlPlane {
		return errors.New("machine set must have either control plane or worker role label")
	}

	allocation := omni.GetMachineAllocation(set)
	if allocation == nil {
		return nil
	}

	if _, ok, err := get[*omni.MachineClass](ctx, v.state, omni.NewMachineClass(allocation.GetName()).Metadata()); err != nil || !ok {
		return errors.Join(err, fmt.Errorf("machine class with name %q doesn't exist", allocation.GetName()))
	}

	return nil
}

// providerUnused refuses to delete a provider that has running machines.
func (v *validator) providerUnused(ctx context.Context, provider *infra.Provider) error {
	machines, err := safe.StateListAll[*omni.Machine](ctx, v.state, state.WithLabelQuery(
		resource.LabelEqual(omni.LabelInfraProviderID, provider.Metadata().ID())))
	if err != nil {
		return err
	}

	var active []string

	for machine := range machines.All() {
		if running(machine) {
			active = append(active, machine.Metadata().ID())
		}
	}

	if len(active) > 0 {
		return fmt.Errorf("cannot delete the infra provider %q, as there are %d running machines managed by it: %v",
			provider.Metadata().ID(), len(active), active)
	}

	return nil
}

func (v *validator) providerData(ctx context.Context, provider, data string) error {
	record, ok, err := get[*infra.ProviderStatus](ctx, v.state, infra.NewProviderStatus(provider).Metadata())
	if err != nil {
		return err
	}

	if !ok {
		return fmt.Errorf("failed to get provider: resource %s(%s/%s) doesn't exist",
			infra.InfraProviderStatusType, infra.NewProviderStatus(provider).Metadata().Namespace(), provider)
	}

	if _, static := record.Metadata().Labels().Get(omni.LabelIsStaticInfraProvider); static {
		return errors.New("cannot use static provider in the auto-provisioned machine class")
	}

	if record.TypedSpec().Value.GetSchema() == "" {
		return nil
	}

	return checkProviderData(provider, record.TypedSpec().Value.GetSchema(), data)
}
