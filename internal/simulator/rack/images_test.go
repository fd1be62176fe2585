package rack

import (
	"fmt"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func TestSnapshots(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	d := r.disk("d", gib, blank(0))

	create := func(name string, disk oxide.NameOrId) (*oxide.Snapshot, error) {
		return r.client.SnapshotCreate(ctx, oxide.SnapshotCreateParams{Project: demo, Body: &oxide.SnapshotCreate{
			Name: oxide.Name(name), Description: "", Disk: disk,
		}})
	}

	s := must(create("by-id", oxide.NameOrId(d.Id)))(t)
	must(create("by-name", "d"))(t)

	if s.State != oxide.SnapshotStateReady || s.DiskId != d.Id || r.diskState(d.Id) != "detached" {
		t.Errorf("snapshot is %+v", s)
	}

	_, err := create("by-id", "d")
	wantError(t, err, 400, "ObjectAlreadyExists", `already exists: snapshot "by-id"`)

	_, err = create("x", "none")
	wantError(t, err, 404, "ObjectNotFound", "disk")

	imp := r.disk("imp", gib, importing())
	_, err = create("x", oxide.NameOrId(imp.Id))
	wantError(t, err, 400, "InvalidRequest", "import_ready")

	local := r.disk("local", gib, oxide.DiskBackend{Value: &oxide.DiskBackendLocal{}})
	_, err = create("x", oxide.NameOrId(local.Id))
	wantError(t, err, 400, "InvalidRequest", "local")

	if all := must(r.client.SnapshotListAllPages(ctx, oxide.SnapshotListParams{Project: demo}))(t); len(all) != 2 {
		t.Errorf("%d snapshots", len(all))
	}
}

func TestImages(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Projects = []string{"demo", "other"}
		c.Tokens = []Token{{Value: DefaultToken}, {Value: "limited", SiloRole: RoleLimitedCollaborator}, {Value: "project", ProjectRoles: map[string]Role{"demo": RoleAdmin}}}
	})
	ctx := t.Context()
	snap := r.upload("up", gib, noise(512))
	img := must(r.createImage(demo, "img", snap.Id))(t)
	id := oxide.NameOrId(img.Id)

	_, err := r.createImage(demo, "img", snap.Id)
	wantError(t, err, 400, "ObjectAlreadyExists", `"img"`)

	_, err = r.createImage("other", "img", snap.Id)
	wantError(t, err, 400, "InvalidRequest", "does not belong to this project")

	_, err = r.createImage(demo, "none", img.Id)
	wantError(t, err, 404, "ObjectNotFound", "snapshot")

	for n, status := range map[int]int{64: 201, 65: 500} {
		got, _, _ := r.raw("POST", "/v1/images?project=demo", fmt.Sprintf(
			`{"name":"v%d","description":"","os":"talos","version":%q,"source":{"type":"snapshot","id":%q}}`, n, strings.Repeat("1", n), snap.Id))
		if got != status {
			t.Errorf("version of %d characters: %d", n, got)
		}
	}

	// A role on the project alone does not reach images by ID.
	_, err = r.as("project").ImageView(ctx, oxide.ImageViewParams{Image: id})
	wantError(t, err, 404, "ObjectNotFound", "image with id")
	must(r.as("project").ImageView(ctx, oxide.ImageViewParams{Image: "img", Project: demo}))(t)

	_, err = r.as("limited").ImagePromote(ctx, oxide.ImagePromoteParams{Image: id})
	wantError(t, err, 403, "Forbidden", "")

	p := must(r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: id}))(t)
	if p.ProjectId != "" || p.Id != img.Id {
		t.Errorf("promoted image is %+v", p)
	}

	_, err = r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: id})
	wantError(t, err, 400, "InvalidRequest", "Cannot promote a silo image")

	_, err = r.client.ImageView(ctx, oxide.ImageViewParams{Image: "img", Project: demo})
	wantError(t, err, 404, "ObjectNotFound", "image")
	must(r.client.ImageView(ctx, oxide.ImageViewParams{Image: "img"}))(t)

	// The name is free in the project, and taken in the silo.
	second := must(r.createImage(demo, "img", snap.Id))(t)
	_, err = r.client.ImagePromote(ctx, oxide.ImagePromoteParams{Image: oxide.NameOrId(second.Id)})
	wantError(t, err, 400, "ObjectAlreadyExists", `"img"`)

	inProject := must(r.client.ImageListAllPages(ctx, oxide.ImageListParams{Project: demo}))(t)
	inSilo := must(r.client.ImageListAllPages(ctx, oxide.ImageListParams{}))(t)

	if len(inProject) != 2 || len(inSilo) != 1 {
		t.Errorf("%d images in the project, %d in the silo", len(inProject), len(inSilo))
	}

	wantError(t, r.as("limited").ImageDelete(ctx, oxide.ImageDeleteParams{Image: id}), 403, "Forbidden", "")

	_, err = r.as("limited").ImageDemote(ctx, oxide.ImageDemoteParams{Image: id, Project: "other"})
	wantError(t, err, 403, "Forbidden", "")

	back := must(r.client.ImageDemote(ctx, oxide.ImageDemoteParams{Image: id, Project: "other"}))(t)
	if back.ProjectId == "" {
		t.Errorf("demoted image is %+v", back)
	}

	_, err = r.client.ImageDemote(ctx, oxide.ImageDemoteParams{Image: id, Project: "other"})
	wantError(t, err, 400, "InvalidRequest", "Cannot demote a project image")
}
