package config

import (
	"strings"
	"testing"
	"time"
)

func TestTheLeaseCanBeTurnedOff(t *testing.T) {
	t.Parallel()

	for text, off := range map[string]bool{"on": false, "off": true, "FALSE": true, "true": false} {
		c, err := load(t, []string{"--lease", text}, environment(t))
		if err != nil || c.Lease.Off != off || !strings.Contains(c.String(), `lease="`+map[bool]string{true: "off", false: "on"}[off]+`"`) {
			t.Errorf("%s: off %v: %v", text, c.Lease.Off, err)
		}
	}
}

// The three times of the lease are judged together, in one line.
func TestTheTimesOfTheLeaseGoTogether(t *testing.T) {
	t.Parallel()

	const labels = "--lease-renew-every / LEASE_RENEW_EVERY and --lease-stop-after / LEASE_STOP_AFTER and --lease-duration / LEASE_DURATION: "

	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no switch":     {[]string{"--lease=maybe"}, `--lease / LEASE: "maybe" is neither on nor off`},
		"no time":       {[]string{"--lease-renew-every=soon"}, `--lease-renew-every / LEASE_RENEW_EVERY: "soon" is not a time of 100ms to 10m0s, such as 20s`},
		"renewed late":  {[]string{"--lease-renew-every=15s"}, labels + "renewing the lease every 15s must be more often than stopping without a renewal after 12s"},
		"stopping late": {[]string{"--lease-duration=12s"}, labels + "stopping without a renewal after 12s must come before others take the lease after 12s"},
		"too short":     {[]string{"--lease-duration=500ms"}, labels + "the lease's duration of 500ms is not one of 1s to 10m0s"},
	} {
		_, err := load(t, test.args, environment(t))
		if err == nil || err.Error() != test.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, test.want)
		}
	}

	c, err := load(t, []string{"--lease-duration=2s"}, environment(t, "LEASE_RENEW_EVERY", "500ms", "LEASE_STOP_AFTER", "1200ms"))
	if err != nil || c.Lease.Duration != 2*time.Second || c.Lease.Renew != 500*time.Millisecond || c.Lease.Stop != 1200*time.Millisecond {
		t.Errorf("%+v: %v", c.Lease, err)
	}
}
