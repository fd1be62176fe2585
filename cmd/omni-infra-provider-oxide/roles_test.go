package main

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/siderolabs/omni/client/api/omni/specs"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// A token that may not promote keeps the image in the project, once, and the
// main job works all the same.
func TestATokenThatMayNotPromoteKeepsTheImageInTheProject(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	p.Rack.SetToken(rack.Token{
		Value: "oxide-token-limited", User: "limited", SiloRole: rack.RoleViewer,
		ProjectRoles: map[string]rack.Role{site.Project: rack.RoleLimitedCollaborator},
	})

	env := p.env("oxide")
	env["OXIDE_TOKEN"] = "oxide-token-limited"
	start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 2)
	p.waitJoined("workers", 2)

	if left := p.inventory(); len(left.ProjectImages) != 1 || len(left.SiloImages) != 0 || p.uploads() != 1 {
		t.Errorf("%d images in the project, %d in the silo, %d uploads", len(left.ProjectImages), len(left.SiloImages), p.uploads())
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()
}

// A role that is lost for a while in the middle of a teardown drops no
// finalizer, and the teardown ends when the role is back.
func TestARoleLostInATeardownLeaksNothing(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	start(t, p.env("oxide"))
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 2)
	p.waitJoined("workers", 2)

	p.Rack.SetToken(rack.Token{Value: p.RackToken, User: "provider", SiloRole: rack.SiloNone})

	// The operator shares the daemon's token, so the rack is asked directly.
	views := p.Rack.CallCount("instance_view")

	p.set("workers", "oxide", 0)
	p.eventually("the teardown to be tried without the role", func() bool { return p.Rack.CallCount("instance_view") >= views+4 })

	if n := len(p.requests()); n != 2 {
		t.Errorf("%d requests are left: a finalizer was dropped while the machines run", n)
	}

	p.Rack.SetToken(rack.Token{Value: p.RackToken, User: "provider"})
	p.waitNothingLeft()
}

// Invariant: gone is proved, never assumed. A daemon that is pointed at another
// silo finds nothing of its machines there, and takes none of them for gone.
func TestAnotherSiloIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	d := start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 2)
	p.waitJoined("workers", 2)

	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	other, err := rack.New(rack.Config{Projects: []string{site.Project}})
	if err != nil {
		t.Fatal(err)
	}

	elsewhere := httptest.NewServer(other)

	t.Cleanup(func() {
		other.Close()
		elsewhere.Close()
	})

	wrong := maps.Clone(env)
	wrong["OXIDE_HOST"] = elsewhere.URL
	d = start(t, wrong)
	p.set("workers", "oxide", 0)
	p.eventually("the daemon to notice", func() bool { return strings.Count(d.log(), "the machine was planned in silo") >= 2 })

	if n := len(p.requests()); n != 2 {
		t.Errorf("%d requests are left: machines were taken for gone", n)
	}

	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	start(t, env)
	p.waitNothingLeft()
}

// Invariant: a class's image_scope is carried out, by one upload: an image of ours
// moves from the project to the silo for the class that wants it there.
func TestTheClassSaysWhereItsImageIsKept(t *testing.T) {
	t.Parallel()

	p := newPlace(t, site.Config{})
	start(t, p.env("oxide"))
	p.waitRegistered("oxide")

	for i, c := range []struct {
		scope            string
		projects, shared int
	}{{"project", 1, 0}, {"silo", 0, 1}, {"project", 0, 1}} {
		set := fmt.Sprintf("workers%d", i)

		p.set(set, "oxide", 1, func(s *specs.MachineRequestSetSpec) {
			s.ProviderData = "project: " + site.Project + "\nimage_scope: " + c.scope + "\n"
		})
		p.waitJoined(set, 1)

		if left := p.inventory(); len(left.ProjectImages) != c.projects || len(left.SiloImages) != c.shared || p.uploads() != 1 {
			t.Errorf("%s: %d images in the project, %d in the silo, %d uploads", c.scope, len(left.ProjectImages), len(left.SiloImages), p.uploads())
		}
	}

	for i := range 3 {
		p.set(fmt.Sprintf("workers%d", i), "oxide", 0)
	}

	p.waitNothingLeft()
}
