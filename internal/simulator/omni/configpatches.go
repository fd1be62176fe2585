package omni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"go.uber.org/zap"
)

// reconcilePatchRequests copies each provider's patch to a config patch of the
// same ID for the machine of its request, once that is known. Nothing checks
// what is in it, and of two requests with one ID the later steals the patch.
func (c *controllers) reconcilePatchRequests(ctx context.Context) error {
	requests, err := safe.StateListAll[*infra.ConfigPatchRequest](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for request := range requests.All() {
		errs = errors.Join(errs, c.copyPatch(ctx, request))
	}

	return errs
}

func (c *controllers) copyPatch(ctx context.Context, request *infra.ConfigPatchRequest) error {
	id := request.Metadata().ID()

	status, ok, err := get[*infra.MachineRequestStatus](ctx, c.state, infra.NewMachineRequestStatus(label(request, omni.LabelMachineRequest)).Metadata())
	if err != nil {
		return err
	}

	if !running(request) || !ok {
		gone, err := c.removeByPointer(ctx, omni.NewConfigPatch(id).Metadata())
		if err != nil || !gone || running(request) {
			return err
		}

		return release(ctx, c.state, request, nameConfigPatchRequest)
	}

	if err := hold(ctx, c.state, request, nameConfigPatchRequest); err != nil {
		return err
	}

	machine := status.TypedSpec().Value.GetId()
	if machine == "" {
		c.log.Debug("a config patch waits for its machine to join", zap.String("omni.patch.id", id))

		return nil
	}

	return modify(ctx, c.state, omni.NewConfigPatch(id), nameConfigPatchRequest, func(r *omni.ConfigPatch) error {
		r.TypedSpec().Value = request.TypedSpec().Value.CloneVT()

		for key, value := range request.Metadata().Labels().Raw() {
			r.Metadata().Labels().Set(key, value)
		}

		r.Metadata().Labels().Set(omni.LabelSystemPatch, "")
		r.Metadata().Labels().Set(omni.LabelMachine, machine)

		return nil
	})
}

// patch is one config patch of a machine.
type patch struct {
	id      resource.ID
	version string
	data    []byte
}

// patchesFor are the patches of a machine in the order in which they are
// applied: cluster, machine set, cluster machine, machine; the ID sorts within
// a level only. So a provider's patch, which is of the machine, beats a user's
// patch of the cluster whatever its weight.
func (c *controllers) patchesFor(ctx context.Context, machine resource.Resource) ([]patch, error) {
	all, err := safe.StateListAll[*omni.ConfigPatch](ctx, c.state)
	if err != nil {
		return nil, err
	}

	id := machine.Metadata().ID()
	levels := make([][]patch, 4)

	for p := range all.All() {
		level := patchLevel(p, id, label(machine, omni.LabelCluster), label(machine, omni.LabelMachineSet))
		if level < 0 || !running(p) {
			continue
		}

		data, err := p.TypedSpec().Value.GetUncompressedData()
		if err != nil {
			return nil, fmt.Errorf("reading config patch %q: %w", p.Metadata().ID(), err)
		}

		levels[level] = append(levels[level], patch{
			id: p.Metadata().ID(), version: p.Metadata().Version().String(), data: bytes.Clone(data.Data()),
		})

		data.Free()
	}

	for _, level := range levels {
		slices.SortFunc(level, func(a, b patch) int { return strings.Compare(a.id, b.id) })
	}

	return slices.Concat(levels...), nil
}

// patchLevel says which level a patch has for a machine, -1 for none.
func patchLevel(p *omni.ConfigPatch, machine, cluster, set string) int {
	if label(p, omni.LabelMachine) == machine {
		return 3
	}

	if cluster == "" || label(p, omni.LabelCluster) != cluster {
		return -1
	}

	_, ofSet := p.Metadata().Labels().Get(omni.LabelMachineSet)
	_, ofMachine := p.Metadata().Labels().Get(omni.LabelClusterMachine)

	switch {
	case ofMachine && label(p, omni.LabelClusterMachine) == machine:
		return 2
	case ofMachine:
		return -1
	case ofSet && label(p, omni.LabelMachineSet) == set:
		return 1
	case ofSet:
		return -1
	default:
		return 0
	}
}
