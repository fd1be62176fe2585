// Package demo shows the daemon's main job from beginning to end: three
// simulators and the real daemon as processes of their own, a machine class, a
// cluster that is scaled up and down to nothing, and a look at what is left.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/hack/examples"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/conform"
)

const (
	providerID   = examples.ProviderID
	project      = examples.Project
	cluster      = "demo"
	machineSet   = "demo-workers"
	talosVersion = "1.13.5"
	rackToken    = "oxide-token-demo"
	// phaseWithin bounds one change of scale.
	phaseWithin = 3 * time.Minute
	lookEvery   = 200 * time.Millisecond
)

// Config says what to show.
type Config struct {
	// Simulator and Daemon are the programs to run.
	Simulator, Daemon string
	// Class is the machine class to apply, as for omnictl, and ClassName its
	// name.
	Class     []byte
	ClassName string
	// Scales are the numbers of machines to ask for, one after the other.
	Scales []uint32
	// FullImage uses an image of a real one's size.
	FullImage bool
	// Dir takes logs and keys; it is kept when something goes wrong.
	Dir string
	Out io.Writer
}

// show is one run of the demo.
type show struct {
	cfg   Config
	began time.Time
	op    *operator.Operator

	children []*process
	daemon   *process
	control  string

	seen   map[string]string
	joined int
	// most is the largest number of instances seen at once.
	most int
}

// Run runs the demo and returns an error that says what went wrong, such as an
// invariant that did not hold.
func Run(ctx context.Context, cfg Config) (err error) {
	s := &show{cfg: cfg, began: time.Now(), seen: map[string]string{}}

	defer func() {
		for i := len(s.children) - 1; i >= 0; i-- {
			err = errors.Join(err, s.children[i].stop())
		}
	}()

	if err := s.start(ctx); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, s.op.Close()) }()

	if err := s.applyClass(ctx); err != nil {
		return err
	}

	for _, n := range cfg.Scales {
		if err := s.scale(ctx, n); err != nil {
			return err
		}
	}

	return s.finish(ctx)
}

func (s *show) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.cfg.Out, "%6.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// told are the beginnings of those of the rack's steps that tell what it does;
// all of them are in its log.
var told = []string{"waiting for storage pools", "every sled reports", "sled plan", "service plan", "hand-over: "}

// step shows a step of the rack's coming up.
func (s *show) step(line string) {
	names := strings.Contains(line, "names are entered in DNS")

	if names || slices.ContainsFunc(told, func(begins string) bool { return strings.HasPrefix(line, begins) }) {
		s.say("  rack: %s", line)
	}
}

// start brings up the simulators and the daemon.
func (s *show) start(ctx context.Context) error {
	factoryArgs := []string{"factory", "--listen", "127.0.0.1:0", "--build-delay", "2s", "--data-dir", filepath.Join(s.cfg.Dir, "factory")}
	if s.cfg.FullImage {
		factoryArgs = append(factoryArgs, "--full-image")
	} else {
		// Slow enough to be seen.
		factoryArgs = append(factoryArgs, "--rate", "1048576")
	}

	factory, err := s.simulator(ctx, "factory", factoryArgs)
	if err != nil {
		return err
	}

	omniDir := filepath.Join(s.cfg.Dir, "omni")

	omni, err := s.simulator(ctx, "omni", []string{
		"omni", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--data-dir", omniDir, "--provider", providerID, "--factory-url", factory["endpoint"],
	})
	if err != nil {
		return err
	}

	rack, err := s.simulator(ctx, "rack", []string{"rack", "--listen", "127.0.0.1:0", "--token", rackToken, "--project", project})
	if err != nil {
		return err
	}

	s.control = rack["endpoint"]

	key, err := os.ReadFile(filepath.Join(omniDir, "admin.key"))
	if err != nil {
		return fmt.Errorf("reading the administrator's key: %w", err)
	}

	s.op, err = operator.New(operator.Config{
		OmniEndpoint: omni["endpoint"], OmniKey: strings.TrimSpace(string(key)),
		RackHost: rack["endpoint"], RackToken: rackToken, Project: project,
	})
	if err != nil {
		return err
	}

	return s.startDaemon(ctx, omni["endpoint"], filepath.Join(omniDir, providerID+".key"), rack["endpoint"])
}

func (s *show) simulator(ctx context.Context, name string, args []string) (map[string]string, error) {
	p, err := startProcess(ctx, s.cfg.Dir, name, s.cfg.Simulator, args, conform.Environment(), s.step)
	if err != nil {
		return nil, err
	}

	s.children = append(s.children, p)

	values, err := p.waitReady(ctx)
	if err != nil {
		return nil, err
	}

	s.say("simulated %-8s serves at %s", name, values["endpoint"])

	return values, nil
}

func (s *show) startDaemon(ctx context.Context, endpoint, keyFile, rackURL string) error {
	var err error

	s.daemon, err = startProcess(ctx, s.cfg.Dir, "daemon", s.cfg.Daemon, []string{"--log-format", "console"}, []string{
		"OMNI_ENDPOINT=" + endpoint, "OMNI_SERVICE_ACCOUNT_KEY_FILE=" + keyFile,
		"OXIDE_HOST=" + rackURL, "OXIDE_TOKEN=" + rackToken, "PROVIDER_ID=" + providerID,
	}, nil)
	if err != nil {
		return err
	}

	s.children = append(s.children, s.daemon)
	s.say("daemon runs as process %d, its log is %s", s.daemon.cmd.Process.Pid, s.daemon.log)

	return s.until(ctx, "the daemon to introduce itself to Omni", func() (bool, error) {
		return s.op.ProviderRegistered(ctx, providerID)
	})
}

func (s *show) applyClass(ctx context.Context) error {
	if err := s.op.Apply(ctx, s.cfg.Class); err != nil {
		return fmt.Errorf("applying the machine class: %w", err)
	}

	s.say("applied machine class %q", s.cfg.ClassName)

	return nil
}

// until looks until the condition holds, the phase takes too long, or a process
// has died.
func (s *show) until(ctx context.Context, what string, holds func() (bool, error)) error {
	deadline := time.Now().Add(phaseWithin)

	for {
		ok, err := holds()
		if err != nil || ok {
			return err
		}

		for _, p := range s.children {
			if err := p.alive(); err != nil {
				return err
			}
		}

		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s; see the logs in %s", phaseWithin, what, s.cfg.Dir)
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}
