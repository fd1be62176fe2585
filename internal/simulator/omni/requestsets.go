package omni

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
)

// The tail of a request's ID: six characters without vowels and lookalikes.
const (
	tailAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	tailLength   = 6
)

// reconcileRequestSets keeps as many requests as each set asks for.
func (c *controllers) reconcileRequestSets(ctx context.Context) error {
	sets, err := safe.StateListAll[*omni.MachineRequestSet](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for set := range sets.All() {
		if running(set) {
			errs = errors.Join(errs, c.scale(ctx, set))
		} else {
			errs = errors.Join(errs, c.dissolve(ctx, set))
		}
	}

	return errs
}

func (c *controllers) requestsOf(ctx context.Context, set resource.ID) ([]*infra.MachineRequest, error) {
	requests, err := safe.StateListAll[*infra.MachineRequest](ctx, c.state, state.WithLabelQuery(resource.LabelEqual(omni.LabelMachineRequestSet, set)))
	if err != nil {
		return nil, err
	}

	return slices.Collect(requests.All()), nil
}

// scale counts the requests that are not going, whatever became of them, and
// makes or tears down the difference at once.
func (c *controllers) scale(ctx context.Context, set *omni.MachineRequestSet) error {
	if err := hold(ctx, c.state, set, nameRequestSetStatus); err != nil {
		return err
	}

	requests, err := c.requestsOf(ctx, set.Metadata().ID())
	if err != nil {
		return err
	}

	machines, err := c.machinesByRequest(ctx)
	if err != nil {
		return err
	}

	var staying []*infra.MachineRequest

	for _, request := range requests {
		machine := machines[request.Metadata().ID()]

		// A machine whose link was deleted takes its request with it.
		if running(request) && (machine == nil || running(machine)) {
			staying = append(staying, request)

			continue
		}

		if _, err := remove(ctx, c.state, request); err != nil {
			return err
		}
	}

	surplus := len(staying) - int(set.TypedSpec().Value.GetMachineCount())
	if surplus > 0 {
		return c.scaleDown(ctx, staying, machines, surplus)
	}

	for range -surplus {
		if err := c.newRequest(ctx, set); err != nil {
			return err
		}
	}

	return nil
}

func (c *controllers) newRequest(ctx context.Context, set *omni.MachineRequestSet) error {
	for {
		tail, err := randomTail()
		if err != nil {
			return err
		}

		request := infra.NewMachineRequest(set.Metadata().ID() + "-" + tail)
		request.Metadata().Labels().Set(omni.LabelInfraProviderID, set.TypedSpec().Value.GetProviderId())
		request.Metadata().Labels().Set(omni.LabelMachineRequestSet, set.Metadata().ID())

		from, spec := set.TypedSpec().Value, request.TypedSpec().Value
		spec.TalosVersion = from.GetTalosVersion()
		spec.Extensions = from.GetExtensions()
		spec.KernelArgs = from.GetKernelArgs()
		spec.MetaValues = from.GetMetaValues()
		spec.ProviderData = from.GetProviderData()
		spec.GrpcTunnel = from.GetGrpcTunnel()

		if err := c.state.Create(ctx, request); !state.IsConflictError(err) {
			return err
		}
	}
}

func randomTail() (string, error) {
	tail := make([]byte, tailLength)

	for i := range tail {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(tailAlphabet))))
		if err != nil {
			return "", fmt.Errorf("drawing a request's ID: %w", err)
		}

		tail[i] = tailAlphabet[n.Int64()]
	}

	return string(tail), nil
}

// scaleDown gives back machines that are in no cluster first, then workers,
// then control planes; among those the oldest requests go first.
func (c *controllers) scaleDown(
	ctx context.Context, requests []*infra.MachineRequest, machines map[resource.ID]*omni.Machine, count int,
) error {
	rank := map[resource.ID]int{}

	for _, request := range requests {
		machine := machines[request.Metadata().ID()]
		if machine == nil {
			continue
		}

		member, ok, err := get[*omni.ClusterMachine](ctx, c.state, omni.NewClusterMachine(machine.Metadata().ID()).Metadata())
		if err != nil {
			return err
		}

		if ok {
			rank[request.Metadata().ID()] = 1

			if _, controlPlane := member.Metadata().Labels().Get(omni.LabelControlPlaneRole); controlPlane {
				rank[request.Metadata().ID()] = 2
			}
		}
	}

	slices.SortStableFunc(requests, func(a, b *infra.MachineRequest) int {
		if d := rank[a.Metadata().ID()] - rank[b.Metadata().ID()]; d != 0 {
			return d
		}

		return a.Metadata().Created().Compare(b.Metadata().Created())
	})

	for _, request := range requests[:count] {
		if _, err := remove(ctx, c.state, request); err != nil {
			return err
		}
	}

	return nil
}

// dissolve tears down all requests of a set that is going. If their provider is
// going too, nobody else would ever drop its finalizers.
func (c *controllers) dissolve(ctx context.Context, set *omni.MachineRequestSet) error {
	requests, err := c.requestsOf(ctx, set.Metadata().ID())
	if err != nil {
		return err
	}

	all := true

	for _, request := range requests {
		if err := c.stripOrphaned(ctx, request); err != nil {
			return err
		}

		gone, err := remove(ctx, c.state, request)
		if err != nil {
			return err
		}

		all = all && gone
	}

	if !all {
		return nil
	}

	return release(ctx, c.state, set, nameRequestSetStatus)
}

func (c *controllers) stripOrphaned(ctx context.Context, request *infra.MachineRequest) error {
	provider, ok, err := get[*infra.Provider](ctx, c.state, infra.NewProvider(label(request, omni.LabelInfraProviderID)).Metadata())
	if err != nil || ok && running(provider) {
		return err
	}

	for _, finalizer := range *request.Metadata().Finalizers() {
		if finalizer == nameClusterRequestStatus {
			continue
		}

		if err := release(ctx, c.state, request, finalizer); err != nil {
			return err
		}
	}

	return nil
}

// machinesByRequest finds the machine of each request that has one.
func (c *controllers) machinesByRequest(ctx context.Context) (map[resource.ID]*omni.Machine, error) {
	machines, err := safe.StateListAll[*omni.Machine](ctx, c.state, state.WithLabelQuery(resource.LabelExists(omni.LabelMachineRequest)))
	if err != nil {
		return nil, err
	}

	byRequest := map[resource.ID]*omni.Machine{}

	for machine := range machines.All() {
		byRequest[label(machine, omni.LabelMachineRequest)] = machine
	}

	return byRequest, nil
}
