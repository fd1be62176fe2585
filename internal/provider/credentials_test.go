package provider

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// operator is the rack's client of somebody with a token of their own.
func (b *bench) operator() *oxide.Client {
	b.t.Helper()

	const token = "oxide-token-operator"

	b.sim.SetToken(simrack.Token{Value: token, User: "operator", SiloRole: simrack.RoleAdmin})

	dial := b.net.dialer("rack")
	c, err := oxide.NewClient(oxide.WithHost("http://rack.test"), oxide.WithToken(token),
		oxide.WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: dialTCP(dial), DisableKeepAlives: true}}))
	b.ok(err)

	return c
}

// deleteProject removes all of the project by hand, and then the project.
func (b *bench) deleteProject(c *oxide.Client) {
	b.t.Helper()

	ctx, project := b.t.Context(), oxide.NameOrId(b.project.Id)

	b.until("the project's instances to be deleted", func() bool {
		all, err := c.InstanceListAllPages(ctx, oxide.InstanceListParams{Project: project})
		b.ok(err)

		for i := range all {
			_, _ = c.InstanceStop(ctx, oxide.InstanceStopParams{Instance: oxide.NameOrId(all[i].Id)})
			_ = c.InstanceDelete(ctx, oxide.InstanceDeleteParams{Instance: oxide.NameOrId(all[i].Id)})
		}

		return len(all) == 0
	})

	disks, err := c.DiskListAllPages(ctx, oxide.DiskListParams{Project: project})
	b.ok(err)

	for i := range disks {
		b.ok(c.DiskDelete(ctx, oxide.DiskDeleteParams{Disk: oxide.NameOrId(disks[i].Id)}))
	}

	images, err := c.ImageListAllPages(ctx, oxide.ImageListParams{Project: project})
	b.ok(err)

	for i := range images {
		if images[i].ProjectId == b.project.Id {
			b.ok(c.ImageDelete(ctx, oxide.ImageDeleteParams{Image: oxide.NameOrId(images[i].Id)}))
		}
	}

	b.ok(c.VpcSubnetDelete(ctx, oxide.VpcSubnetDeleteParams{Project: project, Vpc: "default", Subnet: "default"}))
	b.ok(c.VpcDelete(ctx, oxide.VpcDeleteParams{Project: project, Vpc: "default"}))
	b.ok(c.ProjectDelete(ctx, oxide.ProjectDeleteParams{Project: project}))
}

// trouble is something that happens to the daemon's rights in mid-teardown.
type trouble struct {
	happens func(b *bench, c *oxide.Client)
	// health is what Omni is told meanwhile, empty when the teardown ends of itself.
	health []string
	mend   func(b *bench)
}

func troubles() map[string]trouble {
	token := func(role simrack.Role, projects map[string]simrack.Role) func(*bench) {
		return func(b *bench) {
			b.sim.SetToken(simrack.Token{Value: simrack.DefaultToken, User: "provider", SiloRole: role, ProjectRoles: projects})
		}
	}
	give := token("", nil)
	take := func(b *bench, role simrack.Role, projects map[string]simrack.Role) { token(role, projects)(b) }

	return map[string]trouble{
		"the role is removed": {
			func(b *bench, _ *oxide.Client) { take(b, simrack.SiloNone, nil) },
			[]string{"removals: " + theRequest + " is not yet removed: project demo can not be read", "OXIDE_TOKEN", "has lost its role"}, give,
		},
		"the role may only read": {
			func(b *bench, _ *oxide.Client) { take(b, simrack.RoleViewer, nil) },
			[]string{"removals: " + theRequest + " is not yet removed: the daemon's token (OXIDE_TOKEN) lacks a role"}, give,
		},
		"the token is revoked": {
			func(b *bench, _ *oxide.Client) { b.sim.RevokeToken(simrack.DefaultToken) },
			[]string{"rack: the rack at http://rack.test/ refuses the token"}, give,
		},
		"the project is renamed": {
			func(b *bench, c *oxide.Client) {
				_, err := c.ProjectUpdate(b.t.Context(), oxide.ProjectUpdateParams{Project: oxide.NameOrId(b.project.Id), Body: &oxide.ProjectUpdate{Name: "renamed"}})
				b.ok(err)
			}, nil, func(*bench) {},
		},
		"the project is deleted": {
			func(b *bench, c *oxide.Client) { b.deleteProject(c) }, nil, func(*bench) {},
		},
		"the project is deleted while the role is lost": {
			func(b *bench, c *oxide.Client) {
				take(b, simrack.SiloNone, nil)
				b.deleteProject(c)
			},
			[]string{"project demo can not be read: deleted, or", "silo viewer"},
			func(b *bench) { take(b, simrack.RoleViewer, nil) },
		},
	}
}

// Invariant: gone is proved, never assumed. Whatever happens to the daemon's
// rights in the middle of a teardown, no finalizer is dropped before the rack has
// shown that nothing is left, health says which credential is to be mended, and
// the teardown ends when it is.
func TestTroubleWithRightsInATeardownDropsNoFinalizer(t *testing.T) {
	t.Parallel()

	for name, tr := range troubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bubble(t, func(t *testing.T, b *bench) {
				c, d := b.operator(), b.serve()

				b.ask(theRequest)
				b.untilStage(theRequest, stageProvisioned)
				b.joined(theRequest)

				stops := b.sim.CallCount("instance_stop")
				b.remove(theRequest)
				b.until("the teardown to have begun", func() bool { return b.sim.CallCount("instance_stop") > stops })
				tr.happens(b, c)
				b.pass(10 * time.Minute)

				if held := len(tr.health) > 0; b.released(theRequest) == held {
					t.Fatalf("after ten minutes it is released: %v; health says %q\n%s", !held, d.healthText(), b.logText())
				}

				for _, want := range tr.health {
					if got := d.healthText(); !strings.Contains(got, want) {
						t.Errorf("health says %q, not %q", got, want)
					}
				}

				tr.mend(b)
				b.untilReleased(theRequest)
				b.until("health to be well", func() bool { return d.healthText() == "" })
				b.wantNothingIn(c)
			})
		})
	}
}

// wantNothingIn demands that nothing of machines is left in any project.
func (b *bench) wantNothingIn(c *oxide.Client) {
	b.t.Helper()

	projects, err := c.ProjectListAllPages(context.WithoutCancel(b.t.Context()), oxide.ProjectListParams{})
	b.ok(err)

	for i := range projects {
		instances, err := c.InstanceListAllPages(b.t.Context(), oxide.InstanceListParams{Project: oxide.NameOrId(projects[i].Id)})
		b.ok(err)

		disks, err := c.DiskListAllPages(b.t.Context(), oxide.DiskListParams{Project: oxide.NameOrId(projects[i].Id)})
		b.ok(err)

		if len(instances)+len(disks) > 0 {
			b.t.Errorf("%d instances and %d disks are left in %s", len(instances), len(disks), projects[i].Name)
		}
	}
}
