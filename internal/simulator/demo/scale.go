package demo

import (
	"context"
	"fmt"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
)

// scale asks for n machines and shows how they come and go until there are n.
func (s *show) scale(ctx context.Context, n uint32) error {
	s.say("asking for %d machines", n)

	if err := s.op.Scale(ctx, cluster, machineSet, s.cfg.ClassName, talosVersion, n); err != nil {
		return err
	}

	return s.until(ctx, fmt.Sprintf("%d machines", n), func() (bool, error) {
		requests, err := s.op.Requests(ctx)
		if err != nil {
			return false, err
		}

		rack, err := s.op.Inventory(ctx)
		if err != nil {
			return false, err
		}

		omni, err := s.op.Omni(ctx)
		if err != nil {
			return false, err
		}

		s.progress(requests)

		if err := s.check(requests, rack, omni); err != nil {
			return false, err
		}

		return settled(requests, rack, omni, int(n)), nil
	})
}

// progress prints what has changed with each request.
func (s *show) progress(requests []operator.Request) {
	now := map[string]bool{}

	for _, r := range requests {
		now[r.ID] = true
		line := describe(r)

		if s.seen[r.ID] == line {
			continue
		}

		if line == joinedLine {
			s.joined++
		}

		s.seen[r.ID] = line
		s.say("  %-22s %s", r.ID, line)
	}

	for id := range s.seen {
		if !now[id] {
			delete(s.seen, id)
			s.say("  %-22s gone", id)
		}
	}
}

const joinedLine = "joined Omni"

func describe(r operator.Request) string {
	switch {
	case r.TearingDown && r.Stage != "":
		return "leaving: Omni resets the node"
	case r.TearingDown:
		return "leaving: the provider removes the instance"
	case r.Joined:
		return joinedLine
	case r.Stage == "FAILED":
		return "FAILED: " + r.Error
	case r.Stage == "PROVISIONED":
		return "runs, waiting for it to join"
	case r.Stage == "":
		return "requested"
	default:
		return r.Status
	}
}

// check stops the demo when an invariant breaks while things move.
func (s *show) check(requests []operator.Request, rack operator.Rack, omni operator.Omni) error {
	s.most = max(s.most, len(rack.Instances))
	names := map[string]int{}

	for _, i := range rack.Instances {
		if names[string(i.Name)]++; names[string(i.Name)] > 1 {
			return fmt.Errorf("invariant broken: two instances are named %q", i.Name)
		}
	}

	running := map[string]bool{}
	for _, i := range rack.Instances {
		running[string(i.Name)] = i.RunState == oxide.InstanceStateRunning || i.RunState == oxide.InstanceStateRebooting
	}

	for _, r := range requests {
		if r.Stage == "PROVISIONED" && !r.TearingDown && !running[r.ID] {
			return fmt.Errorf("invariant broken: request %q is provisioned, and its instance does not run", r.ID)
		}

		if r.Stage == "FAILED" {
			return fmt.Errorf("request %q failed: %s", r.ID, r.Error)
		}
	}

	if len(omni.ConfigErrors) > 0 {
		return fmt.Errorf("a machine refused its config: %s", omni.ConfigErrors[0])
	}

	return nil
}

// settled says that there are n machines, in Omni as in the rack, and nothing
// is on its way.
func settled(requests []operator.Request, rack operator.Rack, omni operator.Omni, n int) bool {
	for _, r := range requests {
		if r.TearingDown || !r.Joined {
			return false
		}
	}

	return len(requests) == n && len(rack.Instances) == n && omni.Machines == n && omni.Ready == n
}
