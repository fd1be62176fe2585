package omni

import (
	"context"
	"errors"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/access"
	"github.com/siderolabs/omni/client/pkg/jointoken"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	siderolinkconfig "github.com/siderolabs/omni/client/pkg/siderolink"
)

// heartbeatLimit is how old a provider's heartbeat may be. It is the wall
// clock's, as the provider's interval is, and is not scaled.
const heartbeatLimit = 31 * time.Second

// ensureProvider makes the provider and its join config.
func (s *Server) ensureProvider(ctx context.Context, id string) error {
	provider := infra.NewProvider(id)
	provider.Metadata().Finalizers().Add(nameProviderCleanup)

	err := s.state.Create(ctx, provider)
	if err != nil && !state.IsConflictError(err) {
		return err
	}

	if err := s.ensureJoinConfig(ctx, id); err != nil && !state.IsConflictError(err) {
		return err
	}

	return nil
}

// ensureJoinConfig makes what the provider's machines join with. The secret is
// made once, and anew with a provider that was deleted.
func (s *Server) ensureJoinConfig(ctx context.Context, id string) error {
	return modify(ctx, s.state, siderolink.NewProviderJoinConfig(id), nameProviderJoinConfig, func(r *siderolink.ProviderJoinConfig) error {
		spec := r.TypedSpec().Value

		if spec.JoinToken == "" {
			token, err := jointoken.Generate()
			if err != nil {
				return err
			}

			spec.JoinToken = token
		}

		options, err := siderolinkconfig.NewJoinOptions(
			siderolinkconfig.WithJoinToken(spec.GetJoinToken()),
			siderolinkconfig.WithMachineAPIURL(s.MachineAPIURL()),
			siderolinkconfig.WithEventSinkPort(eventsPort),
			siderolinkconfig.WithLogServerPort(logsPort),
			siderolinkconfig.WithProvider(infra.NewProvider(id)),
		)
		if err != nil {
			return err
		}

		config, err := options.RenderJoinConfig()
		if err != nil {
			return err
		}

		spec.Config = &specs.JoinConfig{Config: string(config), KernelArgs: options.GetKernelArgs()}
		r.Metadata().Labels().Set(omni.LabelInfraProviderID, id)

		return nil
	})
}

func (c *controllers) reconcileProviders(ctx context.Context) error {
	providers, err := safe.StateListAll[*infra.Provider](ctx, c.state)
	if err != nil {
		return err
	}

	var errs error

	for provider := range providers.All() {
		if running(provider) {
			errs = errors.Join(errs, c.keepProvider(ctx, provider))
		} else {
			errs = errors.Join(errs, c.clearProvider(ctx, provider))
		}
	}

	return errs
}

func (c *controllers) keepProvider(ctx context.Context, provider *infra.Provider) error {
	if err := hold(ctx, c.state, provider, nameProviderCleanup); err != nil {
		return err
	}

	if err := c.server.ensureJoinConfig(ctx, provider.Metadata().ID()); err != nil {
		return err
	}

	return c.combineStatus(ctx, provider.Metadata().ID())
}

// combineStatus says what the page shows of a provider: connected if its
// heartbeat is young, with the error that it reports.
func (c *controllers) combineStatus(ctx context.Context, id string) error {
	about, known, err := get[*infra.ProviderStatus](ctx, c.state, infra.NewProviderStatus(id).Metadata())
	if err != nil {
		return err
	}

	health, reported, err := get[*infra.ProviderHealthStatus](ctx, c.state, infra.NewProviderHealthStatus(id).Metadata())
	if err != nil {
		return err
	}

	return modify(ctx, c.state, omni.NewInfraProviderCombinedStatus(id), nameCombinedStatus, func(r *omni.InfraProviderCombinedStatus) error {
		spec := r.TypedSpec().Value
		spec.Health = &specs.InfraProviderCombinedStatusSpec_Health{Initialized: known}

		if known {
			spec.Name = about.TypedSpec().Value.GetName()
			spec.Description = about.TypedSpec().Value.GetDescription()
			spec.Icon = about.TypedSpec().Value.GetIcon()
		}

		if !reported {
			return nil
		}

		age := time.Since(health.TypedSpec().Value.GetLastHeartbeatTimestamp().AsTime())
		spec.Health.Connected = age < heartbeatLimit
		spec.Health.Error = health.TypedSpec().Value.GetError()

		if spec.GetHealth().GetConnected() {
			c.revisit(heartbeatLimit - age + time.Second)
		}

		return nil
	})
}

// clearProvider takes away what a deleted provider leaves: its keys first, so
// that it can not write any more. Its own namespace stays. That it tears down
// all request sets made by hand, of whatever provider, is what Omni does.
func (c *controllers) clearProvider(ctx context.Context, provider *infra.Provider) error {
	id := provider.Metadata().ID()

	if err := c.server.RevokeKeys(ctx, access.InfraProviderServiceAccountPrefix+id); err != nil {
		return err
	}

	for _, res := range []resource.Resource{
		infra.NewProviderStatus(id), infra.NewProviderHealthStatus(id), siderolink.NewProviderJoinConfig(id),
		omni.NewInfraProviderCombinedStatus(id),
	} {
		if _, err := c.removeByPointer(ctx, res.Metadata()); err != nil {
			return err
		}
	}

	if err := c.clearLinks(ctx, id); err != nil {
		return err
	}

	statusesGone, err := c.clearStatuses(ctx, id)
	if err != nil {
		return err
	}

	setsGone, err := c.clearRequestSets(ctx)
	if err != nil || !statusesGone || !setsGone {
		return err
	}

	return release(ctx, c.state, provider, nameProviderCleanup)
}

func (c *controllers) removeByPointer(ctx context.Context, ptr resource.Pointer) (bool, error) {
	res, err := c.state.Get(ctx, ptr)
	if state.IsNotFoundError(err) {
		return true, nil
	}

	if err != nil {
		return false, err
	}

	return remove(ctx, c.state, res)
}

func (c *controllers) clearLinks(ctx context.Context, provider string) error {
	links, err := safe.StateListAll[*siderolink.Link](ctx, c.state, state.WithLabelQuery(resource.LabelEqual(omni.LabelInfraProviderID, provider)))
	if err != nil {
		return err
	}

	for l := range links.All() {
		if err := c.teardownLink(ctx, l.Metadata().ID()); err != nil {
			return err
		}
	}

	return nil
}

func (c *controllers) clearStatuses(ctx context.Context, provider string) (bool, error) {
	statuses, err := safe.StateListAll[*infra.MachineRequestStatus](ctx, c.state,
		state.WithLabelQuery(resource.LabelEqual(omni.LabelInfraProviderID, provider)))
	if err != nil {
		return false, err
	}

	all := true

	for st := range statuses.All() {
		gone, err := remove(ctx, c.state, st)
		if err != nil {
			return false, err
		}

		all = all && gone
	}

	return all, nil
}

func (c *controllers) clearRequestSets(ctx context.Context) (bool, error) {
	sets, err := safe.StateListAll[*omni.MachineRequestSet](ctx, c.state)
	if err != nil {
		return false, err
	}

	all := true

	for set := range sets.All() {
		if set.Metadata().Owner() != "" {
			continue
		}

		gone, err := remove(ctx, c.state, set)
		if err != nil {
			return false, err
		}

		all = all && gone
	}

	return all, nil
}
