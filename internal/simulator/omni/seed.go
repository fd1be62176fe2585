package omni

import (
	"context"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	cosiregistry "github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/jointoken"
	"github.com/siderolabs/omni/client/pkg/omni/resources"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/registry"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	"github.com/siderolabs/omni/client/pkg/omni/resources/system"
	siderolinkconfig "github.com/siderolabs/omni/client/pkg/siderolink"
)

// The ports of Omni's event sink and log receiver inside the tunnel.
const (
	eventsPort = 8090
	logsPort   = 8092
)

const (
	serverAddress = "fdae:41e4:649b:9303::1"
	serverSubnet  = "fdae:41e4:649b:9303::/64"
)

// seedDefinitions registers the namespaces and resource types of a real Omni.
// The SDK lists the definitions once at its start and uses v2 join tokens only
// when it sees ProviderJoinConfigs among them.
func seedDefinitions(ctx context.Context, st state.State) error {
	namespaces := cosiregistry.NewNamespaceRegistry(st)
	if err := namespaces.RegisterDefault(ctx); err != nil {
		return fmt.Errorf("registering namespaces: %w", err)
	}

	definitions := cosiregistry.NewResourceRegistry(st)
	if err := definitions.RegisterDefault(ctx); err != nil {
		return fmt.Errorf("registering resource definitions: %w", err)
	}

	for _, ns := range []resource.Namespace{
		resources.DefaultNamespace, resources.EphemeralNamespace, resources.MetricsNamespace, resources.VirtualNamespace,
		resources.ExternalNamespace, resources.InfraProviderNamespace, resources.InfraProviderEphemeralNamespace,
	} {
		if err := namespaces.Register(ctx, ns, ""); err != nil {
			return fmt.Errorf("registering namespace %s: %w", ns, err)
		}
	}

	for _, res := range registry.Resources {
		definition, err := meta.NewResourceDefinition(res.ResourceDefinition())
		if err != nil {
			return fmt.Errorf("defining %s: %w", res.ResourceDefinition().Type, err)
		}

		if err := st.Create(ctx, definition, state.WithCreateOwner(meta.Owner)); err != nil && !state.IsConflictError(err) {
			return fmt.Errorf("registering %s: %w", res.ResourceDefinition().Type, err)
		}
	}

	return nil
}

// seed registers the resource types once, and writes at each start what Omni
// tells its clients about itself, since addresses may have changed.
func (s *Server) seed(ctx context.Context) error {
	if !s.defined {
		if err := seedDefinitions(ctx, s.state); err != nil {
			return err
		}

		s.defined = true
	}

	steps := []func(context.Context) error{s.seedVersions, s.seedFeatures, s.seedTokens, s.seedConnection}

	for _, step := range steps {
		if err := step(ctx); err != nil {
			return fmt.Errorf("writing Omni's own configuration: %w", err)
		}
	}

	return nil
}

func (s *Server) seedVersions(ctx context.Context) error {
	if err := modify(ctx, s.state, system.NewSysVersion(system.SysVersionID), "", func(r *system.SysVersion) error {
		r.TypedSpec().Value.BackendVersion = s.config.Version
		r.TypedSpec().Value.InstanceName = "simulator"

		return nil
	}); err != nil {
		return err
	}

	for _, version := range s.config.TalosVersions {
		if err := modify(ctx, s.state, omni.NewTalosVersion(version), "", func(r *omni.TalosVersion) error {
			r.TypedSpec().Value.Version = version
			r.TypedSpec().Value.CompatibleKubernetesVersions = []string{defaultKubernetesVersion}

			return nil
		}); err != nil {
			return err
		}
	}

	return nil
}

func (s *Server) seedFeatures(ctx context.Context) error {
	return modify(ctx, s.state, omni.NewFeaturesConfig(omni.FeaturesConfigID), "", func(r *omni.FeaturesConfig) error {
		r.TypedSpec().Value.ImageFactoryBaseUrl = s.config.FactoryURL
		r.TypedSpec().Value.ImageFactoryPxeBaseUrl = s.config.FactoryURL

		return nil
	})
}

// seedTokens makes the account's default join token once.
func (s *Server) seedTokens(ctx context.Context) error {
	return modify(ctx, s.state, siderolink.NewDefaultJoinToken(), "", func(r *siderolink.DefaultJoinToken) error {
		if r.TypedSpec().Value.TokenId != "" {
			return nil
		}

		token, err := jointoken.Generate()
		r.TypedSpec().Value.TokenId = token

		return err
	})
}

func (s *Server) seedConnection(ctx context.Context) error {
	if err := modify(ctx, s.state, siderolink.NewAPIConfig(), "", func(r *siderolink.APIConfig) error {
		spec := r.TypedSpec().Value
		spec.MachineApiAdvertisedUrl = s.MachineAPIURL()
		spec.WireguardAdvertisedEndpoint = s.LinkEndpoint()
		spec.EventsPort = eventsPort
		spec.LogsPort = logsPort

		return nil
	}); err != nil {
		return err
	}

	token, err := s.defaultJoinToken(ctx)
	if err != nil {
		return err
	}

	options, err := siderolinkconfig.NewJoinOptions(
		siderolinkconfig.WithMachineAPIURL(s.MachineAPIURL()),
		siderolinkconfig.WithJoinToken(token),
		siderolinkconfig.WithEventSinkPort(eventsPort),
		siderolinkconfig.WithLogServerPort(logsPort),
	)
	if err != nil {
		return err
	}

	return modify(ctx, s.state, siderolink.NewConnectionParams(siderolink.ConfigID), "", func(r *siderolink.ConnectionParams) error { //nolint:staticcheck // older SDKs read it
		setConnectionParams(r.TypedSpec().Value, s.MachineAPIURL(), s.LinkEndpoint(), token, options.GetKernelArgs())

		return nil
	})
}

func setConnectionParams(spec *specs.ConnectionParamsSpec, api, endpoint, token string, args []string) {
	spec.ApiEndpoint = api
	spec.WireguardEndpoint = endpoint
	spec.JoinToken = token
	spec.EventsPort = eventsPort
	spec.LogsPort = logsPort
	spec.Args = strings.Join(args, " ")
}
