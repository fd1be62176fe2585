package omni

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	siderolinkconfig "github.com/siderolabs/omni/client/pkg/siderolink"
	"github.com/siderolabs/talos/pkg/machinery/config"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

const (
	defaultKubernetesVersion = "1.34.2"
	clusterEndpoint          = "https://127.0.0.1:6443"
)

// The keys of the commands that are given to a member of a cluster.
const (
	commandApply = "apply"
	commandReset = "reset"
)

// generatedConfig is a machine's config with what it was made from.
type generatedConfig struct {
	inputs string
	data   string
	sum    string
	err    error
}

// configure applies the machine's config if it has not this one yet. A machine
// that published no platform gets none: Omni could not name its installer.
func (c *controllers) configure(ctx context.Context, machine *omni.ClusterMachine) error {
	if err := hold(ctx, c.state, machine, nameMachineConfigStatus); err != nil {
		return err
	}

	current := c.links.session(machine.Metadata().ID())
	if current == nil {
		return nil
	}

	wanted, err := c.configFor(ctx, machine)
	if err != nil {
		return err
	}

	if current.hello.Platform == "" {
		wanted.err = fmt.Errorf("machine %q has no platform set", machine.Metadata().ID())
	}

	if wanted.err != nil {
		return c.recordConfig(ctx, machine, "", wanted.err)
	}

	applied, _, err := get[*omni.ClusterMachineConfigStatus](ctx, c.state, omni.NewClusterMachineConfigStatus(machine.Metadata().ID()).Metadata())
	if err != nil {
		return err
	}

	stage, _ := current.now()
	key := commandApply + " " + wanted.sum

	if applied != nil && applied.TypedSpec().Value.GetClusterMachineConfigSha256() == wanted.sum &&
		(stage == link.StageRunning || current.given(key)) {
		return nil
	}

	done, err := current.start(ctx, &c.commands, key, link.Command{Verb: link.VerbApplyConfig, Config: wanted.data})
	if !done {
		return nil
	}

	if err != nil {
		current.forget(key)
		c.revisit(c.server.config.scaled(retryInterval))

		return c.recordConfig(ctx, machine, "", err)
	}

	return c.recordConfig(ctx, machine, wanted.sum, nil)
}

// recordConfig writes what came of a config. A failure keeps the sum of the
// config that the machine has.
func (c *controllers) recordConfig(ctx context.Context, machine *omni.ClusterMachine, sum string, failure error) error {
	return modify(ctx, c.state, omni.NewClusterMachineConfigStatus(machine.Metadata().ID()), nameMachineConfigStatus,
		func(r *omni.ClusterMachineConfigStatus) error {
			copyLabels(machine, r, omni.LabelCluster, omni.LabelMachineSet, omni.LabelControlPlaneRole, omni.LabelWorkerRole)

			spec := r.TypedSpec().Value

			if failure == nil {
				spec.ClusterMachineConfigSha256, spec.LastConfigError = sum, ""

				return nil
			}

			if spec.GetLastConfigError() != failure.Error() {
				c.log.Error("a machine can not be configured", zap.String("omni.machine.id", machine.Metadata().ID()), zap.Error(failure))
			}

			spec.LastConfigError = failure.Error()

			return nil
		})
}

// configFor generates the machine's config, or returns the one generated from
// the same inputs before. What is wrong with a patch stands in the result.
func (c *controllers) configFor(ctx context.Context, machine *omni.ClusterMachine) (generatedConfig, error) {
	patches, err := c.patchesFor(ctx, machine)
	if err != nil {
		return generatedConfig{}, err
	}

	cluster, ok, err := get[*omni.Cluster](ctx, c.state, omni.NewCluster(label(machine, omni.LabelCluster)).Metadata())
	if err != nil || !ok {
		return generatedConfig{}, errors.Join(err, fmt.Errorf("the cluster of machine %q doesn't exist", machine.Metadata().ID()))
	}

	inputs := cluster.TypedSpec().Value.GetTalosVersion()
	for _, p := range patches {
		inputs += "\n" + p.id + "@" + p.version
	}

	if known := c.configs[machine.Metadata().ID()]; known.inputs == inputs {
		return known, nil
	}

	bundle, err := c.clusterSecrets(ctx, cluster)
	if err != nil {
		return generatedConfig{}, err
	}

	join, err := c.joinDocuments(ctx, machine)
	if err != nil {
		return generatedConfig{}, err
	}

	made := generatedConfig{inputs: inputs}

	if data, err := generateConfig(cluster, machine, bundle, join, patches); err != nil {
		made.err = err
	} else {
		sum := sha256.Sum256(data)
		made.data, made.sum = string(data), hex.EncodeToString(sum[:])
	}

	c.configs[machine.Metadata().ID()] = made

	return made, nil
}

// clusterSecrets are made once for each cluster.
func (c *controllers) clusterSecrets(ctx context.Context, cluster *omni.Cluster) (*secrets.Bundle, error) {
	var bundle secrets.Bundle

	err := modify(ctx, c.state, omni.NewClusterSecrets(cluster.Metadata().ID()), nameCluster, func(r *omni.ClusterSecrets) error {
		if len(r.TypedSpec().Value.GetData()) == 0 {
			// Secrets of Talos 1.6 differ from later ones in that no RSA key is
			// among them, which takes seconds to make.
			fresh, err := secrets.NewBundle(secrets.NewClock(), config.TalosVersion1_6)
			if err != nil {
				return err
			}

			if r.TypedSpec().Value.Data, err = json.Marshal(fresh); err != nil {
				return err
			}
		}

		return json.Unmarshal(r.TypedSpec().Value.GetData(), &bundle)
	})
	if err != nil {
		return nil, fmt.Errorf("making secrets of cluster %q: %w", cluster.Metadata().ID(), err)
	}

	bundle.Clock = secrets.NewClock()

	return &bundle, nil
}

func contractOf(cluster *omni.Cluster) (*config.VersionContract, error) {
	return config.ParseContractFromVersion("v" + cluster.TypedSpec().Value.GetTalosVersion())
}

// joinDocuments are what keeps a configured machine in Omni: the join config
// that it first came with.
func (c *controllers) joinDocuments(ctx context.Context, machine resource.Resource) ([]documents.Document, error) {
	record, ok, err := get[*omni.Machine](ctx, c.state, omni.NewMachine(machine.Metadata().ID()).Metadata())
	if err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("machine %q doesn't exist", machine.Metadata().ID()))
	}

	token, err := c.server.defaultJoinToken(ctx)
	if err != nil {
		return nil, err
	}

	provider := label(record, omni.LabelInfraProviderID)

	own, ok, err := get[*siderolink.ProviderJoinConfig](ctx, c.state, siderolink.NewProviderJoinConfig(provider).Metadata())
	if err != nil {
		return nil, err
	}

	if ok {
		token = own.TypedSpec().Value.GetJoinToken()
	}

	options, err := siderolinkconfig.NewJoinOptions(
		siderolinkconfig.WithMachine(record),
		siderolinkconfig.WithJoinToken(token),
		siderolinkconfig.WithMachineAPIURL(c.server.MachineAPIURL()),
		siderolinkconfig.WithEventSinkPort(eventsPort),
		siderolinkconfig.WithLogServerPort(logsPort),
	)
	if err != nil {
		return nil, err
	}

	return options.JoinConfigDocuments()
}

// generateConfig makes a Talos machine config with all patches and the join
// documents.
func generateConfig(
	cluster *omni.Cluster, machine resource.Resource, bundle *secrets.Bundle, join []documents.Document, patches []patch,
) ([]byte, error) {
	contract, err := contractOf(cluster)
	if err != nil {
		return nil, err
	}

	input, err := generate.NewInput(cluster.Metadata().ID(), clusterEndpoint, defaultKubernetesVersion,
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle), generate.WithInstallDisk("/dev/vda"))
	if err != nil {
		return nil, err
	}

	machineType := machinetype.TypeWorker
	if _, ok := machine.Metadata().Labels().Get(omni.LabelControlPlaneRole); ok {
		machineType = machinetype.TypeControlPlane
	}

	base, err := input.Config(machineType)
	if err != nil {
		return nil, err
	}

	loaded := make([]configpatcher.Patch, 0, len(patches))

	for _, p := range patches {
		one, err := configpatcher.LoadPatch(p.data)
		if err != nil {
			return nil, fmt.Errorf("loading config patch %q: %w", p.id, err)
		}

		loaded = append(loaded, one)
	}

	patched, err := configpatcher.Apply(configpatcher.WithConfig(base), loaded)
	if err != nil {
		return nil, fmt.Errorf("applying config patches: %w", err)
	}

	provider, err := patched.Config()
	if err != nil {
		return nil, err
	}

	full, err := container.New(append(provider.Documents(), join...)...)
	if err != nil {
		return nil, err
	}

	return full.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}
