package main

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/omni"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// Rule B46: a guest may show its instance's ID in another byte order than the rack
// tells it. One machine appears in Omni for each request all the same.
func TestB46OneMachineForEachRequestWhateverUUIDTheGuestShows(t *testing.T) {
	t.Parallel()

	for name, swapped := range map[string]bool{"as the rack tells it": false, "in another byte order": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := newPlace(t, site.Config{Rack: rack.Config{SwapGuestUUID: swapped}})
			start(t, p.env("oxide"))
			p.waitRegistered("oxide")
			p.set("workers", "oxide", 3)
			p.waitJoined("workers", 3)

			instances := map[string]bool{}
			for _, i := range p.inventory().Instances {
				instances[i.Id] = true
			}

			machines := must(safe.StateListAll[*omni.Machine](t.Context(), p.Omni.AdminState()))(t)
			if machines.Len() != 3 || len(instances) != 3 {
				t.Errorf("%d machines of %d instances", machines.Len(), len(instances))
			}

			for m := range machines.All() {
				if instances[m.Metadata().ID()] == swapped {
					t.Errorf("machine %s of instances %v", m.Metadata().ID(), instances)
				}
			}

			p.set("workers", "oxide", 0)
			p.waitNothingLeft()
		})
	}
}

// The main job: machines appear, join, and go away again without a trace, and a
// healthy run logs nothing at warn or above.
func TestMachinesComeAndGoWithoutATrace(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	d := start(t, env)
	p.waitRegistered("oxide")

	for _, n := range []int32{3, 5, 2} {
		p.set("workers", "oxide", n)
		p.eventually("the set to have its size", func() bool { return len(p.requests()) == int(n) && p.joined("workers") == int(n) })
	}

	if got := p.inventory(); len(got.Instances) != 2 || len(got.SiloImages) != 1 || len(got.ProjectImages) != 0 {
		t.Errorf("%d instances, %d images of the silo, %d of the project", len(got.Instances), len(got.SiloImages), len(got.ProjectImages))
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()

	if ready, why := d.ready(); !ready {
		t.Errorf("not ready: %s", why)
	}

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	if p.uploads() != 1 {
		t.Errorf("%d uploads", p.uploads())
	}

	if loud := d.entries("warn", "error"); len(loud) > 0 {
		t.Errorf("a healthy run logged:\n%s", strings.Join(loud, "\n"))
	}

	for name, secret := range map[string]string{"key": env["OMNI_SERVICE_ACCOUNT_KEY"], "token": p.RackToken} {
		if strings.Contains(d.log(), secret) || strings.Contains(d.log(), base64.StdEncoding.EncodeToString([]byte(secret))) {
			t.Errorf("the %s is in the log", name)
		}
	}

	if strings.Contains(d.log(), "jointoken") || strings.Contains(d.log(), "SideroLinkConfig") {
		t.Error("the join config is in the log")
	}

	omni, err := p.Operator.Omni(t.Context())
	if err != nil || omni.ConfigPatchRequests != 0 || omni.Links != 0 {
		t.Errorf("left in Omni: %+v, %v", omni, err)
	}
}

// Several daemons with different IDs live beside each other in one Omni and in
// one project without touching each other's objects.
func TestTwoProvidersInOneProjectDoNotTouchEachOther(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})

	for _, id := range []string{"oxide-a", "oxide-b"} {
		start(t, p.env(id))
		p.waitRegistered(id)
	}

	p.set("set-a", "oxide-a", 3)
	p.set("set-b", "oxide-b", 3)
	p.waitJoined("set-a", 3)
	p.waitJoined("set-b", 3)

	owners := map[string]string{}

	for _, i := range p.inventory().Instances {
		mark, ok := naming.Parse(i.Description)
		if !ok {
			t.Fatalf("instance %s is not marked: %q", i.Name, i.Description)
		}

		if want := "oxide-" + string(i.Name)[4:5]; mark.Provider != want {
			t.Errorf("instance %s is of provider %s", i.Name, mark.Provider)
		}

		owners[mark.Provider] = mark.Owner
	}

	if owners["oxide-a"] == owners["oxide-b"] {
		t.Error("both providers have one owner ID")
	}

	p.set("set-a", "oxide-a", 0)
	p.eventually("the first provider's machines to go", func() bool { return len(p.inventory().Instances) == 3 })

	if n := p.joined("set-b"); n != 3 {
		t.Errorf("%d machines of the second provider are left", n)
	}

	p.set("set-b", "oxide-b", 0)
	p.waitNothingLeft()
}

// Twenty requests at once for two schematics are two uploads.
func TestTwentyRequestsForTwoSchematicsAreTwoUploads(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{Factory: factory.Config{BuildDelay: 0}})
	start(t, p.env("oxide"))
	p.waitRegistered("oxide")

	p.set("plain", "oxide", 10)
	p.set("args", "oxide", 10, func(s *specs.MachineRequestSetSpec) { s.KernelArgs = []string{"talos.dashboard.disabled=1"} })
	p.waitJoined("plain", 10)
	p.waitJoined("args", 10)

	if got := p.inventory(); p.uploads() != 2 || got.Images() != 2 || len(got.Instances) != 20 {
		t.Errorf("%d uploads, %d images, %d instances", p.uploads(), got.Images(), len(got.Instances))
	}

	p.set("plain", "oxide", 0)
	p.set("args", "oxide", 0)
	p.waitNothingLeft()
}

// A machine of a cluster gets its config, with our provider ID in it, and Omni
// resets it before it goes.
func TestAMachineOfAClusterIsConfiguredAndReset(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	start(t, p.env("oxide"))
	p.waitRegistered("oxide")

	class := "metadata: {namespace: default, type: MachineClasses.omni.sidero.dev, id: small}\n" +
		"spec: {autoprovision: {providerid: oxide, providerdata: 'project: " + site.Project + "'}}\n"
	if err := p.Operator.Apply(t.Context(), []byte(class)); err != nil {
		t.Fatal(err)
	}

	scale := func(n uint32) {
		if err := p.Operator.Scale(t.Context(), "talos", "talos-workers", "small", "1.13.5", n); err != nil {
			t.Fatal(err)
		}
	}

	scale(2)
	p.eventually("two configured machines", func() bool {
		o, err := p.Operator.Omni(t.Context())

		return err == nil && o.Ready == 2 && o.Machines == 2
	})

	scale(0)
	p.waitNothingLeft()
}
