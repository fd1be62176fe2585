package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// rackEnv is the environment with nothing of Omni in it.
func (r *crashRun) rackEnv() map[string]string {
	return map[string]string{"OXIDE_HOST": r.RackURL, "OXIDE_TOKEN": r.RackToken, "LOG_LEVEL": "warn"}
}

// Invariant: nothing foreign is touched. Beside objects of strangers, of another
// owner and of another provider, and marks that can not be read, `offboard` lists
// the owners, changes nothing without the right answer, and then removes exactly
// what the chosen one has, a stranger's disk on its instance excepted.
func TestOffboardRemovesOneOwnerExactly(t *testing.T) {
	t.Parallel()

	o := newOrphanage(t)
	env := o.rackEnv()
	want := o.leaves()
	o.eventually("the instance to run", func() bool {
		return slices.ContainsFunc(o.inventory().Instances, func(i oxide.Instance) bool {
			return i.Name == "gone-1" && i.RunState == oxide.InstanceStateRunning
		})
	})

	all := describe(t, o.inventory())
	chosen := o.owner + "/" + crashProvider

	out, errs, code := ask(t, env, "", "offboard", "--output", "json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}

	var answer offboarded
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v in %s", err, out)
	}

	owners := map[string]int{}

	for _, h := range answer.Owners {
		for _, n := range h.Objects {
			owners[h.String()] += n
		}

		if h.Oldest.IsZero() || h.Newest.Before(h.Oldest) {
			t.Errorf("%s: oldest %s, newest %s", h, h.Oldest, h.Newest)
		}
	}

	// The foreign image and snapshot have marks of other forms or providers.
	if owners[chosen] != len(want) || len(owners) != 3 || owners[o.owner+"/oxide-2"] == 0 || answer.Strangers == 0 || answer.Unparsable == 0 {
		t.Errorf("owners %v, %d strangers, %d unparsable; %d are of the chosen one", owners, answer.Strangers, answer.Unparsable, len(want))
	}

	for _, refused := range []struct {
		stdin string
		args  []string
		code  int
	}{
		{"", []string{"--owner", chosen}, exitRefused},
		{"yes\n", []string{"--owner", chosen}, exitRefused},
		{"", []string{"--owner", o.owner, "--yes", o.owner}, exitRefused},
		{"", []string{"--owner", chosen, "--yes", o.owner}, exitConfig},
		{"", []string{"--owner", "me"}, exitConfig},
		{"", []string{"--images"}, exitConfig},
	} {
		if _, errs, code := ask(t, env, refused.stdin, append([]string{"offboard"}, refused.args...)...); code != refused.code || errs == "" {
			t.Errorf("%v: exit code %d, %s", refused.args, code, errs)
		}
	}

	all.check(t, o.inventory())

	out, errs, code = ask(t, env, chosen+"\n", "offboard", "--owner", chosen)
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}

	after := describe(t, o.inventory())
	for id, name := range want {
		if after[id] != "" || !strings.Contains(out, "("+id+")") {
			t.Errorf("%s is still there, or was not told of:\n%s", name, out)
		}
	}

	o.foreign.check(t, o.inventory())

	if !slices.ContainsFunc(o.inventory().Disks, func(d oxide.Disk) bool { return d.Name == "strangers-gone-1" }) {
		t.Error("the disk that somebody attached is gone")
	}

	before := maps.Clone(after)

	if out, errs, code := ask(t, env, "", "offboard", "--owner", chosen, "--yes", chosen); code != 0 || !strings.Contains(out, "no object of owner "+chosen+" is on this rack; there are some of "+o.owner+"/oxide-2\n") {
		t.Errorf("again: exit code %d\n%s\n%s", code, out, errs)
	}

	if !maps.Equal(before, describe(t, o.inventory())) {
		t.Error("the second run has changed something")
	}
}

// Invariant: an owner that is nowhere is said to be nowhere, as far as was looked,
// and no question is asked. What could not be looked at is told of.
func TestOffboardSaysThatAnOwnerIsNowhere(t *testing.T) {
	t.Parallel()

	o := newOrphanage(t)
	all := describe(t, o.inventory())
	nobody := strings.Repeat("z", 26)

	for _, c := range []struct {
		args []string
		code int
		note string
	}{
		{[]string{"--owner", nobody}, 0, "no object of owner " + nobody + " is on this rack"},
		{[]string{"--owner", nobody + "/oxide", "--project", site.Project}, 0, "no object of owner " + nobody + "/oxide is in what was looked at"},
		{[]string{"--owner", nobody, "--project", "nowhere", "--project", site.Project}, exitFailure, "no object of owner " + nobody + " is in what was looked at"},
	} {
		out, errs, code := ask(t, o.rackEnv(), "", append([]string{"offboard"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.note+"\n") || (code == 0) != (errs == "") {
			t.Errorf("%v: exit code %d\n%s\n%s", c.args, code, out, errs)
		}

		unread := strings.Count(out, `Not looked at: project "nowhere" is not in the silo, or the token has no role in it`+"\n")
		if (unread == 1) != slices.Contains(c.args, "nowhere") {
			t.Errorf("%v: told %d times of what was not looked at:\n%s", c.args, unread, out)
		}

		out, _, code = ask(t, o.rackEnv(), "", append([]string{"offboard", "--output", "json"}, c.args...)...)

		var answer offboarded
		if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Note != c.note || code != c.code {
			t.Errorf("%v: exit code %d, %v\n%s", c.args, code, err, out)
		}
	}

	all.check(t, o.inventory())
}

// What a token may not do is told for each object, and nothing is gone.
func TestOffboardTellsWhatItMayNot(t *testing.T) {
	t.Parallel()

	o := newOrphanage(t)
	instance, _ := o.instance("gone-1", false)
	chosen := o.owner + "/" + crashProvider
	all := describe(t, o.inventory())

	o.Rack.SetToken(rack.Token{Value: "oxide-token-viewer", User: "viewer", SiloRole: rack.RoleViewer})

	env := o.rackEnv()
	env["OXIDE_TOKEN"] = "oxide-token-viewer"

	out, errs, code := ask(t, env, "", "offboard", "--owner", chosen, "--yes", chosen)
	if code != exitFailure || !strings.Contains(out, "left instance gone-1 ("+instance+")") || !strings.Contains(errs, "still there") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}

	all.check(t, o.inventory())
}

// offboardKilled: the provider's daemon is no more, and it is the removal of what
// it has made that dies. Another one ends it.
func offboardKilled() scenario {
	return scenario{
		name:   "offboard killed",
		before: func(r *crashRun) { r.beginWith(1); r.calls.aim(nil) },
		run: func(r *crashRun) {
			r.daemon.kill()
			r.set("workers", crashProvider, 0)
			r.eventually("the request to be torn down", func() bool {
				all := r.requests()

				return len(all) == 1 && all[0].TearingDown
			})

			run := func() *daemon {
				d := &crashRun{place: r.place, env: r.rackEnv()}
				chosen := r.owner + "/" + crashProvider

				return d.command("offboard", "--owner", chosen, "--yes", chosen, "--images")
			}

			hand := run()
			r.calls.aim(hand)

			<-hand.done
			r.calls.observe(false)

			if r.calls.struckDown() {
				r.restarted = true
				close(r.calls.again)

				hand = run()
				<-hand.done
			}

			if code := hand.wait(); code != 0 {
				r.t.Errorf("the removal exits with %d: %s", code, hand.log())
			}

			if left := r.ours(); left.Leftovers() != 0 || left.Images() != 0 {
				r.t.Errorf("left:\n%s", left)
			}

			r.foreign.check(r.t, r.inventory())
			r.calls.aim(nil)

			// The requests are ended by the daemon, which finds nothing to remove.
			r.daemon = start(r.t, r.env)
		},
	}
}
