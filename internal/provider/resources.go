package provider

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/siderolabs/omni/client/pkg/infra"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
)

// boundID is the provider ID of this process. It is the one piece of
// package-level mutable state: the SDK asks a resource's Go type, without a
// value, for its COSI type and namespace, and both hold the provider ID.
var boundID atomic.Pointer[string]

// Bind fixes the provider ID for the life of the process and registers the
// stored types. It must be called before anything else of this package; a
// second call with another ID fails.
func Bind(id string) error {
	if !boundID.CompareAndSwap(nil, &id) && *boundID.Load() != id {
		return fmt.Errorf("this process already serves provider ID %q, not %q", *boundID.Load(), id)
	}

	for _, register := range []func() error{
		func() error { return protobuf.RegisterResource(resourceType(instanceName), &Instance{}) },
		func() error { return protobuf.RegisterResource(resourceType(ownerName), &Owner{}) },
		func() error { return protobuf.RegisterResource(resourceType(runName), &Run{}) },
		func() error { return protobuf.RegisterResource(resourceType(imageUseName), &ImageUse{}) },
		func() error { return protobuf.RegisterResource(resourceType(publishedName), &Published{}) },
		func() error { return protobuf.RegisterResource(resourceType(leaseName), &lease.Resource{}) },
	} {
		// The SDK registers the instance's type once more and tolerates it too.
		if err := register(); err != nil && !strings.Contains(err.Error(), "is already registered") {
			return fmt.Errorf("registering stored types: %w", err)
		}
	}

	return nil
}

// The names of the stored types; the COSI type is `<name>.<provider
// id>.infraprovider.sidero.dev`. They must not change: state is found by them.
const (
	instanceName = "Instance"
	ownerName    = "Owner"
	runName      = "ImportRun"
	imageUseName = "ImageUse"
	leaseName    = "Lease"
)

// Instance is the state of one machine request, see specs.InstanceSpec. Its ID
// is the ID of the request.
type Instance = typed.Resource[InstanceSpec, instanceExtension]

// InstanceSpec wraps the protobuf.
type InstanceSpec = protobuf.ResourceSpec[specs.InstanceSpec, *specs.InstanceSpec]

// Owner is the identity of our objects in the rack, see specs.OwnerSpec.
type Owner = typed.Resource[OwnerSpec, ownerExtension]

// OwnerSpec wraps the protobuf.
type OwnerSpec = protobuf.ResourceSpec[specs.OwnerSpec, *specs.OwnerSpec]

// Run is a process that imports images, see specs.RunSpec. Its ID is the run's.
type Run = typed.Resource[RunSpec, runExtension]

// RunSpec wraps the protobuf.
type RunSpec = protobuf.ResourceSpec[specs.RunSpec, *specs.RunSpec]

// ImageUse is when an image was last used, see specs.ImageUseSpec. Its ID is the
// image's in the rack.
type ImageUse = typed.Resource[ImageUseSpec, imageUseExtension]

// ImageUseSpec wraps the protobuf.
type ImageUseSpec = protobuf.ResourceSpec[specs.ImageUseSpec, *specs.ImageUseSpec]

type (
	instanceExtension struct{}
	ownerExtension    struct{}
	runExtension      struct{}
	imageUseExtension struct{}
)

// ResourceDefinition implements typed.Extension.
func (instanceExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(instanceName)
}

// ResourceDefinition implements typed.Extension.
func (ownerExtension) ResourceDefinition() meta.ResourceDefinitionSpec { return definition(ownerName) }

// ResourceDefinition implements typed.Extension.
func (runExtension) ResourceDefinition() meta.ResourceDefinitionSpec { return definition(runName) }

// ResourceDefinition implements typed.Extension.
func (imageUseExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(imageUseName)
}

func definition(name string) meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{Type: resourceType(name), DefaultNamespace: namespace()}
}

func resourceType(name string) string { return infra.ResourceType(name, providerID()) }

func namespace() resource.Namespace { return infra.ResourceNamespace(providerID()) }

func providerID() string {
	id := boundID.Load()
	if id == nil {
		panic("provider.Bind was not called")
	}

	return *id
}

func metadata(name string, id resource.ID) resource.Metadata {
	return resource.NewMetadata(namespace(), resourceType(name), id, resource.VersionUndefined)
}
