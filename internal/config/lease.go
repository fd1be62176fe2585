package config

import (
	"fmt"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lease"
)

// Lease says how replicas with one provider ID agree on one of them.
type Lease struct {
	// Off makes the process work without asking.
	Off bool
	lease.Times
}

func leaseOptions() []option {
	const on, duration, renew, stop = "lease", "lease-duration", "lease-renew-every", "lease-stop-after"

	return []option{
		{
			flag: on, env: "LEASE", kind: "on|off", def: "on", required: true,
			help:  "on: of all replicas with this provider ID one works and the others stand by; off: only where something else allows one replica",
			field: func(c *Config) any { return (*leaseSwitch)(&c.Lease.Off) },
			read:  readLeaseSwitch,
		},
		{
			flag: duration, env: "LEASE_DURATION", kind: "duration", def: lease.DefaultDuration.String(), required: true,
			help:  "How long the replica that works must have shown no sign of life before another takes over, 1s to 10m",
			field: func(c *Config) any { return &c.Lease.Duration },
			read:  leaseTime(func(c *Config) *time.Duration { return &c.Lease.Duration }),
		},
		{
			flag: renew, env: "LEASE_RENEW_EVERY", kind: "duration", def: lease.DefaultRenew.String(), required: true,
			help:  "How often the replica that works gives a sign of life",
			field: func(c *Config) any { return &c.Lease.Renew },
			read:  leaseTime(func(c *Config) *time.Duration { return &c.Lease.Renew }),
		},
		{
			flag: stop, env: "LEASE_STOP_AFTER", kind: "duration", def: lease.DefaultStop.String(), required: true,
			help:  "How long after its last sign of life a replica begins nothing any more; between the two above",
			field: func(c *Config) any { return &c.Lease.Stop },
			read:  leaseTime(func(c *Config) *time.Duration { return &c.Lease.Stop }),
		},
	}
}

// leaseSwitch shows a Lease.Off as the option has it.
type leaseSwitch bool

func (s *leaseSwitch) String() string {
	if *s {
		return "off"
	}

	return "on"
}

func readLeaseSwitch(c *Config, text string) error {
	on, err := onOff(text)
	c.Lease.Off = !on

	return err
}

func leaseTime(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 100*time.Millisecond || d > lease.MaxDuration {
			return fmt.Errorf("%s is not a time of 100ms to %s, such as 20s", shown(text), lease.MaxDuration)
		}

		*field(c) = d

		return nil
	}
}

// leaseTimes makes sure that the times go together.
func leaseTimes(c *Config, wrong map[string]bool) error {
	flags := []string{"lease-renew-every", "lease-stop-after", "lease-duration"}

	for _, f := range flags {
		if wrong[f] {
			return nil
		}
	}

	if err := c.Lease.Check(); err != nil {
		return fmt.Errorf("%s: %w", labels(flags...), err)
	}

	return nil
}
