package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// faultFlags are rules for the start: a file of them, and single ones.
type faultFlags struct {
	file   string
	single []string
}

func (f *faultFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "faults", "", "file with fault rules, a JSON array")
	flags.StringArrayVar(&f.single, "fault", nil, "a fault rule in JSON; may be repeated")
}

func (f *faultFlags) read() ([]rack.Fault, error) {
	var out []rack.Fault

	if f.file != "" {
		raw, err := os.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("reading --faults: %w", err)
		}

		if out, err = rack.ParseFaults(raw); err != nil {
			return nil, fmt.Errorf("reading --faults: %w", err)
		}
	}

	for _, raw := range f.single {
		rules, err := rack.ParseFaults([]byte(raw))
		if err != nil {
			return nil, fmt.Errorf("reading --fault: %w", err)
		}

		out = append(out, rules...)
	}

	return out, nil
}

func faultHelp() string {
	return `A fault is a JSON object, here, in --fault, and in --faults, which may hold an
array of them:

  {"action": "error", "operation": "instance_create", "skip": 1, "count": 2,
   "status": 507, "code": "InsufficientCapacity", "message": "..."}
  {"condition": "stuck", "kind": "instance", "state": "stopping", "until": "12m"}
  {"event": "project_renamed", "project": "demo", "to": "other", "from": "5m"}

An action is done to the calls that it picks, by operation (the names that GET
summary counts), method, path (a part of the path and query), token (its name),
skip, count, and probability with seed. A condition holds until it is deleted. An
event happens once: at once, or before a call that it picks. "from" and "until"
bound the time of all three, from when the rule was added or, with "since":
"start", from when the rack was started. What there is, with the fields that it
needs and [may have]:

` + rack.FaultKinds()
}
