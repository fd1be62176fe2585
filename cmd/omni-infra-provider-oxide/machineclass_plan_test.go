package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"go.yaml.in/yaml/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// written counts the provider's calls that were to change anything in the rack, in
// Omni or, through Omni, at the factory.
func (p *place) written() int {
	n := 0

	for _, c := range p.Rack.Calls() {
		if c.Method != http.MethodGet && strings.HasPrefix(c.UserAgent, "omni-infra-provider-oxide/") {
			n++
		}
	}

	for _, c := range p.Omni.Calls() {
		if c.Verb != "Get" && c.Verb != "List" && c.Verb != "Watch" && strings.Contains(c.Identity, "@infra-provider.") {
			n++
		}
	}

	return n
}

// Invariant: a preview says what the daemon makes, and writes nothing anywhere.
func TestAPreviewIsWhatTheDaemonMakesAndWritesNothing(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	d := start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)

	if code := d.stop(); code != 0 {
		t.Fatalf("the daemon ended with %d", code)
	}

	before := p.written()
	class := "project: " + site.Project + "\ncpus: 2\ndisks: [{size: 3, type: local}]\nmachine_set_group: allow\n"
	plan := func(class string, args ...string) (stdout, stderr string, code int) {
		return ask(t, env, "", append([]string{
			"machine-class", "plan", p.file("class.yaml", []byte(class)), "--request", "wide-bcdfgh", "--talos", "v" + testTalos, "--log-level", "error",
		}, args...)...)
	}

	var inJSON, inYAML provider.Preview

	out, stderr, code := plan(class, "-o", "json")
	if err := json.Unmarshal([]byte(out), &inJSON); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
	}

	out, _, _ = plan(class, "-o", "yaml")
	if err := yaml.Unmarshal([]byte(out), &inYAML); err != nil {
		t.Fatal(err)
	}

	table, _, code := plan(class)
	if code != 0 || !strings.Contains(table, "no request wide-bcdfgh in Omni") {
		t.Errorf("exit code %d: %s", code, table)
	}

	got := inJSON
	if got.Instance != "wide-bcdfgh" || got.Set != "wide" || len(got.Disks) != 2 || got.Disks[1].Name != naming.Disk("data0", "wide-bcdfgh") ||
		len(got.Groups) != 1 || !got.Groups[0].Made || got.Interfaces[0].Subnet != "default" {
		t.Errorf("previewed %+v", got)
	}

	if left := p.inventory(); got.Image.ID == "" || got.Image.ID != append(left.ProjectImages, left.SiloImages...)[0].Id {
		t.Errorf("the image is %+v", got.Image)
	}

	for _, q := range got.Quota {
		if want := map[string]uint64{"cpus": 2, "memory": 4 << 30, "storage": 13 << 30}[q.Resource]; q.After-q.Before != want || !q.Fits {
			t.Errorf("quota %+v, takes %d", q, want)
		}
	}

	if inYAML.Image != got.Image || inYAML.Instance != got.Instance || len(inYAML.Disks) != 2 {
		t.Errorf("as YAML %+v", inYAML)
	}

	// What the rack does not have is refused with the request's line, a mistake of
	// the class as validate does it.
	if _, stderr, code := plan("project: nowhere\n"); code != 1 || !strings.Contains(stderr, `project: "nowhere" is not in the silo`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}

	if out, _, code := plan("project: a\ncpus: 300\n"); code != 1 || !strings.Contains(out, "300 is over the limit of 254") {
		t.Errorf("exit code %d: %s", code, out)
	}

	if _, stderr, code := plan(class, "-o", "xml"); code != 2 || !strings.Contains(stderr, "neither table, json nor yaml") {
		t.Errorf("exit code %d: %s", code, stderr)
	}

	if n := p.written() - before; n != 0 {
		t.Errorf("%d calls have written something", n)
	}

	// The daemon makes just that.
	start(t, env)
	p.set("wide", "oxide", 1, func(s *specs.MachineRequestSetSpec) { s.ProviderData = class })
	p.waitJoined("wide", 1)

	groups := must(p.Operator.Rack().AntiAffinityGroupListAllPages(t.Context(), oxide.AntiAffinityGroupListParams{Project: site.Project}))(t)
	if len(groups) != 1 || string(groups[0].Name) != got.Groups[0].Name {
		t.Errorf("the groups are %+v, previewed %+v", groups, got.Groups)
	}

	for _, set := range []string{"workers", "wide"} {
		p.set(set, "oxide", 0)
	}

	p.waitNothingLeft()
}
