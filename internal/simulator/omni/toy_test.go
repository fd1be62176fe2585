package omni_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/infra"
	"github.com/siderolabs/omni/client/pkg/infra/provision"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

const toyID = "toy"

// toyMachine is the toy provider's record of a machine.
type (
	toyMachine     = typed.Resource[toyMachineSpec, toyMachineExtension]
	toyMachineSpec = protobuf.ResourceSpec[specs.MachineRequestStatusSpec, *specs.MachineRequestStatusSpec]

	toyMachineExtension struct{}
)

func (toyMachineExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{Type: infra.ResourceType("Machine", toyID), DefaultNamespace: infra.ResourceNamespace(toyID)}
}

const toySchema = `{"type":"object","additionalProperties":false,"required":["cores"],
"properties":{"cores":{"type":"integer","minimum":1,"maximum":64},"zone":{"type":"string","pattern":"^[a-z]+$"}}}`

// toy is a provider whose machines are guests of this test.
type toy struct {
	t        *testing.T
	platform string
	// boots is false for machines that never join.
	boots bool
	// broken makes the last step fail.
	broken error

	mu         sync.Mutex
	guests     map[string]*guest
	schematics []string
	gone       []string
}

func newToy(t *testing.T) *toy {
	t.Helper()

	return &toy{t: t, platform: "nocloud", boots: true, guests: map[string]*guest{}}
}

func (p *toy) ProvisionSteps() []provision.Step[*toyMachine] {
	return []provision.Step[*toyMachine]{
		provision.NewStep("schematic", func(ctx context.Context, log *zap.Logger, c provision.Context[*toyMachine]) error {
			id, err := c.GenerateSchematicID(ctx, log, provision.WithoutConnectionParams())

			p.mu.Lock()
			p.schematics = append(p.schematics, id)
			p.mu.Unlock()

			return err
		}),
		provision.NewStep("boot", func(ctx context.Context, _ *zap.Logger, c provision.Context[*toyMachine]) error {
			if p.broken != nil {
				return p.broken
			}

			id := c.GetRequestID()

			if err := c.CreateConfigPatch(ctx, "000-"+toyID+"-"+id+"-node", []byte("machine:\n  nodeLabels:\n    zone: rack-1\n")); err != nil {
				return err
			}

			p.mu.Lock()
			defer p.mu.Unlock()

			if p.guests[id] == nil && p.boots {
				p.guests[id] = bootGuest(p.t, c.ConnectionParams.JoinConfig, p.platform)
			}

			return nil
		}),
	}
}

func (p *toy) Deprovision(_ context.Context, _ *zap.Logger, _ *toyMachine, request *infrares.MachineRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()

	id := request.Metadata().ID()
	if g := p.guests[id]; g != nil {
		g.powerOff()
		delete(p.guests, id)
	}

	p.gone = append(p.gone, id)

	return nil
}

func (p *toy) guest(id string) *guest {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.guests[id]
}

func (p *toy) deprovisioned() int {
	p.mu.Lock()
	defer p.mu.Unlock()

	return len(p.gone)
}

// running is a provider's Run that a test ends.
type running struct {
	cancel context.CancelFunc
	result chan error
}

// start runs the real SDK's provider with the toy.
func (p *toy) start(server *simulator.Server, key string) *running {
	p.t.Helper()

	provider, err := infra.NewProvider(toyID, p, infra.ProviderConfig{Name: "Toy", Description: "A toy", Schema: toySchema})
	check(p.t, err)

	log := zap.NewNop()
	if testing.Verbose() {
		log = zaptest.NewLogger(p.t)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(p.t.Context()))
	r := &running{cancel: cancel, result: make(chan error, 1)}

	go func() {
		r.result <- provider.Run(ctx, log, infra.WithOmniEndpoint(server.Endpoint()),
			infra.WithClientOptions(client.WithServiceAccount(key)), infra.WithConcurrency(4),
			infra.WithEncodeRequestIDsIntoTokens(), infra.WithHealthCheckInterval(time.Second))
	}()

	p.t.Cleanup(func() {
		cancel()

		if err := r.wait(p.t); err != nil {
			p.t.Logf("the provider ended with: %v", err)
		}
	})

	return r
}

// wait returns how Run ended.
func (r *running) wait(t *testing.T) error {
	t.Helper()

	select {
	case err := <-r.result:
		r.result <- err

		return err
	case <-time.After(patience):
		return errors.New("the provider did not end")
	}
}

func (p *toy) startWithNewKey(server *simulator.Server) *running {
	p.t.Helper()

	key, err := server.MintProviderKey(p.t.Context(), toyID, time.Hour)
	check(p.t, err)

	r := p.start(server, key)

	count[*infrares.ProviderStatus](p.t, server.AdminState(), 1)

	return r
}

var _ provision.Provisioner[*toyMachine] = (*toy)(nil)
