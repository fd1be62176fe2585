package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"

	"github.com/oxidecomputer/omni-infra-provider-oxide/api/specs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/published"
)

// publishedName is the type under which the published provider stores a machine.
// It has our provider ID and our finalizer, so when the binary is swapped its
// requests come to us, and the SDK gives each of them an empty state of ours.
const publishedName = "Machine"

// Published is the state of a machine of the published provider, see
// specs.PublishedMachineSpec. Its ID is the ID of the request.
type Published = typed.Resource[PublishedSpec, publishedExtension]

// PublishedSpec wraps the protobuf.
type PublishedSpec = protobuf.ResourceSpec[specs.PublishedMachineSpec, *specs.PublishedMachineSpec]

type publishedExtension struct{}

// ResourceDefinition implements typed.Extension.
func (publishedExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(publishedName)
}

// notPublished holds a request back that the published provider has a machine
// for, or may have: we would make a second one, or let go of the first.
func (p *Provisioner) notPublished(ctx context.Context, requestID string) error {
	reading, cancel := context.WithTimeout(ctx, omniDeadline)
	defer cancel()

	res, err := safe.StateGet[*Published](reading, p.State(), metadata(publishedName, requestID))

	switch {
	case state.IsNotFoundError(err):
		return nil
	case err != nil:
		return &instance.Wait{Reason: "reading from Omni whether the published provider made this machine", After: 5 * time.Second, Cause: err}
	}

	machine := "a machine"
	if id := published.Read(res.TypedSpec().Value).Instance; id != "" {
		machine = "instance " + id
	}

	return &instance.Mend{Reason: fmt.Sprintf("the published Oxide provider has made %s for this request: nothing is done until it is taken over", machine)}
}
