// Package operator does to a site what people do with omnictl and the Oxide
// command line: it applies machine classes, scales clusters, and looks at what
// there is. It uses the public clients, an address and a credential, and so
// tells whether any other client would see the same.
package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	simomni "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

// Config says where a site is. OmniKey is an administrator's key.
type Config struct {
	OmniEndpoint, OmniKey string
	RackHost, RackToken   string
	Project               string
}

// Operator works on one site.
type Operator struct {
	cfg  Config
	omni *client.Client
	st   state.State
	rack *oxide.Client
}

// New makes an operator. It makes no call.
func New(cfg Config) (*Operator, error) {
	c, err := client.New(cfg.OmniEndpoint, client.WithServiceAccount(cfg.OmniKey))
	if err != nil {
		return nil, fmt.Errorf("making the Omni client: %w", err)
	}

	rack, err := oxide.NewClient(oxide.WithHost(cfg.RackHost), oxide.WithToken(cfg.RackToken))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the Oxide client: %w", err), c.Close())
	}

	return &Operator{cfg: cfg, omni: c, st: c.Omni().State(), rack: rack}, nil
}

// Close ends the connection to Omni.
func (o *Operator) Close() error { return o.omni.Close() }

// State is Omni's, with the rights of an administrator.
func (o *Operator) State() state.State { return o.st }

// Rack is the client of the rack.
func (o *Operator) Rack() *oxide.Client { return o.rack }

// Apply applies YAML documents as omnictl does.
func (o *Operator) Apply(ctx context.Context, documents []byte) error {
	return simomni.ApplyYAML(ctx, o.st, documents)
}

// ProviderRegistered says whether the provider has introduced itself to Omni,
// which it must before classes can name it.
func (o *Operator) ProviderRegistered(ctx context.Context, id string) (bool, error) {
	_, err := o.st.Get(ctx, infra.NewProviderStatus(id).Metadata())
	if state.IsNotFoundError(err) {
		return false, nil
	}

	return err == nil, err
}

// Scale has a cluster's machine set hold count machines of a class. The cluster
// and the set are made when they do not exist.
func (o *Operator) Scale(ctx context.Context, cluster, set, class, talosVersion string, count uint32) error {
	c := omni.NewCluster(cluster)
	c.TypedSpec().Value.TalosVersion = talosVersion
	c.TypedSpec().Value.KubernetesVersion = "1.35.0"

	if err := o.st.Create(ctx, c); err != nil && !state.IsConflictError(err) {
		return fmt.Errorf("creating cluster %q: %w", cluster, err)
	}

	s := omni.NewMachineSet(set)
	allocation := &specs.MachineSetSpec_MachineAllocation{Name: class, MachineCount: count}

	_, err := safe.StateUpdateWithConflicts(ctx, o.st, s.Metadata(), func(r *omni.MachineSet) error {
		r.TypedSpec().Value.MachineAllocation = allocation

		return nil
	})
	if !state.IsNotFoundError(err) {
		return err
	}

	s.Metadata().Labels().Set(omni.LabelCluster, cluster)
	s.Metadata().Labels().Set(omni.LabelWorkerRole, "")
	s.TypedSpec().Value.UpdateStrategy = specs.MachineSetSpec_Rolling
	s.TypedSpec().Value.MachineAllocation = allocation

	if err := o.st.Create(ctx, s); err != nil {
		return fmt.Errorf("creating machine set %q: %w", set, err)
	}

	return nil
}

// RequestSet has a machine request set of its own, without a cluster, hold
// count machines.
func (o *Operator) RequestSet(ctx context.Context, id string, spec *specs.MachineRequestSetSpec) error {
	_, err := safe.StateUpdateWithConflicts(ctx, o.st, omni.NewMachineRequestSet(id).Metadata(), func(r *omni.MachineRequestSet) error {
		r.TypedSpec().Value = spec

		return nil
	})
	if !state.IsNotFoundError(err) {
		return err
	}

	s := omni.NewMachineRequestSet(id)
	s.TypedSpec().Value = spec

	return o.st.Create(ctx, s)
}
