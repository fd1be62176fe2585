package main

import (
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/operator"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// What can be judged locally ends the daemon with 2, all of it at once.
func TestAWrongConfigurationEndsWithTwo(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})

	admin, err := p.Omni.MintAdminKey(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	other := p.env("another")["OMNI_SERVICE_ACCOUNT_KEY"]

	for _, tc := range []struct {
		name   string
		change map[string]string
		want   []string
	}{
		{"another provider's key", map[string]string{"OMNI_SERVICE_ACCOUNT_KEY": other}, []string{"OMNI_SERVICE_ACCOUNT_KEY", `"another"`}},
		{"an administrator's key", map[string]string{"OMNI_SERVICE_ACCOUNT_KEY": admin}, []string{"OMNI_SERVICE_ACCOUNT_KEY"}},
		{"a malformed key", map[string]string{"OMNI_SERVICE_ACCOUNT_KEY": "c2VjcmV0"}, []string{"OMNI_SERVICE_ACCOUNT_KEY"}},
		{
			"three mistakes", map[string]string{"OMNI_ENDPOINT": "omni.example.com", "PROVIDER_ID": "Oxide_Prod 1", "PROVISIONER_CONCURRENCY": "0"},
			[]string{"OMNI_ENDPOINT", "PROVIDER_ID", "PROVISIONER_CONCURRENCY"},
		},
	} {
		env := p.env("oxide")
		for k, v := range tc.change {
			env[k] = v
		}

		d := start(t, env)
		if code := d.wait(); code != 2 {
			t.Errorf("%s: exit code %d\n%s", tc.name, code, d.log())
		}

		for _, w := range tc.want {
			if !strings.Contains(d.log(), w) {
				t.Errorf("%s: %q does not say %q", tc.name, d.log(), w)
			}
		}

		if n := strings.Count(strings.TrimSpace(d.log()), "\n") + 1; len(tc.want) == 3 && n != 3 {
			t.Errorf("%s: %d lines:\n%s", tc.name, n, d.log())
		}
	}
}

// Endpoints that refuse or can not be reached keep the process alive and not
// ready, with one log line per change, and it goes on by itself.
func TestARefusedTokenIsToldAndHeals(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	env["OXIDE_TOKEN"] = "oxide-token-wrong"

	d := start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)

	p.eventually("the request to say so", func() bool {
		r := p.requests()

		return len(r) == 1 && r[0].Stage == "FAILED" && strings.Contains(r[0].Error, "refuses the daemon's token")
	})
	p.eventually("the probe to say so", func() bool {
		ready, why := d.ready()

		return !ready && strings.Contains(why, "refuses the token")
	})

	if loud := d.entries("warn"); len(loud) < 1 || strings.Count(strings.Join(loud, "\n"), "not ready") != 1 {
		t.Errorf("warned %d times:\n%s", len(loud), strings.Join(loud, "\n"))
	}

	p.Rack.SetToken(rack.Token{Value: "oxide-token-wrong"})
	p.eventually("it to heal", func() bool { return p.joined("workers") == 1 })
	p.eventually("it to be ready", func() bool { ready, _ := d.ready(); return ready })
}

// A key that Omni refuses, as after the provider was deleted there, is noticed
// although no stream ends by it.
func TestARefusedKeyIsNoticedWhileRunning(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	d := start(t, p.env("oxide"))
	p.waitRegistered("oxide")
	p.eventually("ready", func() bool { ready, _ := d.ready(); return ready })

	if err := p.Omni.RevokeKeys(t.Context(), "infra-provider:oxide"); err != nil {
		t.Fatal(err)
	}

	p.eventually("the probe to say so", func() bool {
		ready, why := d.ready()

		return !ready && strings.Contains(why, "refuses the service account key")
	})

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestTheDaemonWaitsForOmniAndTheRack(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")

	if _, err := p.Rack.AddFault(rack.Fault{Action: rack.ActionReset, Count: 4}); err != nil {
		t.Fatal(err)
	}

	p.Omni.Stop()

	d := start(t, env)
	p.eventually("the probe to say so", func() bool {
		ready, why := d.ready()

		return !ready && strings.Contains(why, "omni: Omni at") && strings.Contains(why, "can not be reached")
	})

	if err := p.Omni.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	p.waitRegistered("oxide")
	p.eventually("ready", func() bool { ready, _ := d.ready(); return ready })
}

// Run ends when a stream can not be resumed; it is run again, and work goes on.
func TestABrokenStreamIsMadeAgain(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	d := start(t, p.env("oxide"))
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)

	p.Omni.StaleBookmarks()
	p.Omni.CutStreams()
	p.set("workers", "oxide", 2)
	p.waitJoined("workers", 2)

	p.eventually("the daemon to tell of the broken link and of the new one", func() bool {
		return strings.Contains(d.log(), "not ready: the link to Omni") && strings.Contains(d.log(), "well again")
	})

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// What a user must mend is told in the request's status, one line each.
func TestARequestSaysWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	start(t, p.env("oxide"))
	p.waitRegistered("oxide")

	type change = func(*specs.MachineRequestSetSpec)

	for set, tc := range map[string]struct {
		change change
		want   []string
	}{
		"project": {func(s *specs.MachineRequestSetSpec) { s.ProviderData = "project: nowhere" }, []string{`project: "nowhere"`}},
		"subnet": {func(s *specs.MachineRequestSetSpec) {
			s.ProviderData += "network_interfaces: [{ip_config: v4, vpc_name: default, subnet_name: nope}]"
		}, []string{"network_interfaces[0].subnet_name", `"nope"`}},
		"group": {func(s *specs.MachineRequestSetSpec) { s.ProviderData += "anti_affinity_groups: [spread]" }, []string{"anti_affinity_groups[0]", `"spread"`}},
		"mistakes": {func(s *specs.MachineRequestSetSpec) {
			s.ProviderData += "cpus: 300\nmemory: 2000\nboot_disk_size: 1024\n"
		}, []string{"cpus", "254", "memory", "1536", "boot_disk_size", "1023"}},
		"oldtalos": {func(s *specs.MachineRequestSetSpec) { s.TalosVersion = "1.12.2" }, []string{"1.12.2", "1.12.3"}},
	} {
		p.set(set, "oxide", 1, tc.change)

		var found operator.Request

		p.eventually(set+" to be refused", func() bool {
			for _, r := range p.requests() {
				if r.Set == set && r.Stage == "FAILED" {
					found = r

					return true
				}
			}

			return false
		})

		for _, w := range tc.want {
			if !strings.Contains(found.Error, w) {
				t.Errorf("%s: %q does not say %q", set, found.Error, w)
			}
		}

		if strings.Contains(found.Error, "\n") || len([]rune(found.Error)) > 200 {
			t.Errorf("%s: not one short line: %q", set, found.Error)
		}
	}

	// Nothing was made or uploaded for any of them, and their teardown ends.
	if left := p.inventory(); left.Leftovers() != 0 || p.uploads() != 0 {
		t.Errorf("%d objects, %d uploads", left.Leftovers(), p.uploads())
	}

	for _, set := range []string{"project", "subnet", "group", "mistakes", "oldtalos"} {
		p.set(set, "oxide", 0, func(s *specs.MachineRequestSetSpec) {
			if set == "oldtalos" {
				s.TalosVersion = "1.12.2"
			}
		})
	}

	p.waitNothingLeft()
}

// A start that does not fit is no provisioned machine, says why on Omni's page,
// and goes on by itself.
func TestAMachineThatDoesNotFitWaitsAndSaysWhy(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{Rack: rack.Config{Quota: rack.Quota{CPUs: 1}}})
	start(t, p.env("oxide"))
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 2)
	p.waitJoined("workers", 1)

	p.eventually("the other to say why", func() bool {
		for _, r := range p.requests() {
			if !r.Joined && r.Stage == "PROVISIONING" && (strings.Contains(r.Status, "vCPU Limit Exceeded") || strings.HasPrefix(r.Status, "waiting for quota: the machine needs 1 vCPU")) {
				return true
			}
		}

		return false
	})

	p.set("workers", "oxide", 1)
	p.eventually("one machine", func() bool { return len(p.requests()) == 1 && p.joined("workers") == 1 })
	p.set("workers", "oxide", 0)
	p.waitNothingLeft()
}
