package omni

import (
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/pkg/omni/resources"
	"github.com/siderolabs/omni/client/pkg/omni/resources/auth"
	"github.com/siderolabs/omni/client/pkg/omni/resources/common"
	"github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	"github.com/siderolabs/omni/client/pkg/omni/resources/system"
	"github.com/siderolabs/omni/client/pkg/omni/resources/virtual"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// providerTypeSuffix ends the names of the types that a provider may keep in
// its own namespace: "<Name>.<provider ID>.infraprovider.sidero.dev".
const providerTypeSuffix = ".infraprovider.sidero.dev"

// providerRule says what the owner of a provider's key may do with a type of
// the providers' namespaces.
type providerRule struct {
	// readOnly lets a provider change finalizers and nothing else.
	readOnly bool
	// ownID demands that a resource made by a provider bears its ID.
	ownID bool
	// adminOnly lets no user but an administrator read it.
	adminOnly bool
}

var providerRules = map[resource.Type]providerRule{
	infra.MachineRequestType:            {readOnly: true},
	infra.MachineRegistrationType:       {readOnly: true},
	siderolink.ProviderJoinConfigType:   {readOnly: true},
	infra.InfraMachineType:              {readOnly: true},
	infra.BMCConfigType:                 {readOnly: true, adminOnly: true},
	infra.MachineRequestStatusType:      {},
	infra.ConfigPatchRequestType:        {},
	infra.InfraMachineStatusType:        {},
	infra.InfraProviderStatusType:       {ownID: true},
	infra.InfraProviderHealthStatusType: {ownID: true},
	infra.ProviderType:                  {ownID: true},
}

// ruleFor says whether the providers' rules govern a type, and which.
func ruleFor(ns resource.Namespace, typ resource.Type) (providerRule, bool) {
	if strings.HasPrefix(ns, resources.InfraProviderSpecificNamespacePrefix) {
		return providerRule{}, true
	}

	rule, ok := providerRules[typ]

	return rule, ok
}

// providerScope says whether a provider may touch a namespace and type at all,
// and whether only resources with its label.
func providerScope(ns resource.Namespace, typ resource.Type, provider string) (labelled bool, err error) {
	if ns == resources.InfraProviderNamespace || ns == resources.InfraProviderEphemeralNamespace {
		return true, nil
	}

	own := resources.InfraProviderSpecificNamespacePrefix + provider
	if ns != own {
		return false, status.Errorf(codes.PermissionDenied, "namespace not allowed, must be one of: %s, %s, %s",
			resources.InfraProviderNamespace, resources.InfraProviderEphemeralNamespace, own)
	}

	if suffix := "." + provider + providerTypeSuffix; !strings.HasSuffix(typ, suffix) {
		return false, status.Errorf(codes.InvalidArgument, "resources in namespace %q must have a type suffix %q", ns, suffix)
	}

	return false, nil
}

// The types outside of the providers' namespaces, by who may read them.
var (
	signedTypes = []resource.Type{
		meta.NamespaceType, meta.ResourceDefinitionType, omni.FeaturesConfigType, omni.TalosExtensionsType, omni.TalosVersionType,
		omni.KubernetesVersionType, omni.InstallationMediaType, omni.OngoingTaskType, omni.MachineStatusMetricsType, omni.NotificationType,
		omni.ClusterMetricsType, omni.ClusterStatusMetricsType, system.SysVersionType, virtual.AdvertisedEndpointsType,
		virtual.CurrentUserType, virtual.ClusterPermissionsType, virtual.QuirksType, virtual.PermissionsType,
	}

	// A provider must see machines that were removed by force, and how to join.
	providerReadable = []resource.Type{omni.MachineType, siderolink.APIConfigType, siderolink.ConnectionParamsType}

	adminTypes = []resource.Type{auth.IdentityType, auth.UserType, auth.AccessPolicyType, auth.ServiceAccountStatusType}

	secretTypes = []resource.Type{
		auth.PublicKeyType, omni.ClusterSecretsType, omni.ClusterMachineConfigType, siderolink.ConfigType,
		siderolink.NodeUniqueTokenType, siderolink.JoinTokenUsageType,
	}

	// Links are read and deleted by users, and made by joins alone.
	destroyable = []resource.Type{siderolink.LinkType}
)

// checkType decides about a type outside of the providers' namespaces.
func checkType(who identity, verb state.Verb, typ resource.Type) error {
	if slices.Contains(secretTypes, typ) || !strings.HasSuffix(typ, ".sidero.dev") && !slices.Contains(signedTypes, typ) {
		return status.Error(codes.PermissionDenied, "no access is permitted")
	}

	needed := roleReader

	switch {
	case slices.Contains(signedTypes, typ):
		needed = roleNone
	case slices.Contains(providerReadable, typ):
		needed = roleInfraProvider
	case slices.Contains(adminTypes, typ):
		needed = roleAdmin
	case !verb.Readonly():
		needed = roleOperator
	}

	if err := who.role.require(needed); err != nil {
		return err
	}

	if verb.Readonly() || slices.Contains(common.UserManagedResourceTypes, typ) {
		return nil
	}

	if slices.Contains(destroyable, typ) {
		if verb == state.Destroy {
			return nil
		}

		return status.Error(codes.PermissionDenied, "only read and delete access is permitted")
	}

	return status.Error(codes.PermissionDenied, "only read access is permitted")
}
