package offboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/goleak"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/offboard"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var owner = offboard.Owner{ID: "abcdefghijklmnopqrstuvwxyz", Provider: "oxide"}

func marked(kind naming.Kind) string {
	m := naming.Mark{Owner: owner.ID, Provider: owner.Provider, Kind: kind, Key: naming.RequestKey("gone-1"), Run: "0123abcd"}
	if kind == naming.KindImage {
		m.Image = &naming.ImageMark{
			Schematic: strings.Repeat("3765", 16), Talos: "1.13.5", Arch: "amd64", Factory: strings.Repeat("0", 16),
		}
	}

	return m.Describe("Of a test.")
}

// rig is a simulated rack with two projects, and its operator's client.
type rig struct {
	*simrack.Server

	t     *testing.T
	url   string
	admin *oxide.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()

	s, err := simrack.New(simrack.Config{TimeScale: 0.001, Projects: []string{"demo", "second"}})
	if err != nil {
		t.Fatal(err)
	}

	served, transport := httptest.NewServer(s), &http.Transport{}

	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
		served.Close()
	})

	admin, err := oxide.NewClient(oxide.WithHost(served.URL), oxide.WithToken(simrack.DefaultToken),
		oxide.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}

	return &rig{s, t, served.URL, admin}
}

// as is a client with a token of its own, or with the operator's.
func (r *rig) as(token simrack.Token) *rack.Client {
	r.t.Helper()

	if token.Value == "" {
		token.Value = simrack.DefaultToken
	} else {
		r.SetToken(token)
	}

	c, err := rack.New(rack.Config{Host: r.url, Token: token.Value})
	if err != nil {
		r.t.Fatal(err)
	}

	r.t.Cleanup(c.Close)

	return c
}

func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}

		return value
	}
}

func (r *rig) disk(project, name, description string, source oxide.DiskSource) *oxide.Disk {
	r.t.Helper()

	return must(r.admin.DiskCreate(r.t.Context(), oxide.DiskCreateParams{Project: oxide.NameOrId(project), Body: &oxide.DiskCreate{
		Name: oxide.Name(name), Description: description, Size: 1 << 30,
		DiskBackend: oxide.DiskBackend{Value: oxide.DiskBackendDistributed{DiskSource: source}},
	}}))(r.t)
}

var blank = oxide.DiskSource{Value: oxide.DiskSourceBlank{BlockSize: 512}}

// instance has the disks attached.
func (r *rig) instance(name, description string, start bool, disks ...*oxide.Disk) *oxide.Instance {
	r.t.Helper()

	attached := make([]oxide.InstanceDiskAttachment, 0, len(disks))
	for _, d := range disks {
		attached = append(attached, oxide.InstanceDiskAttachment{Value: oxide.InstanceDiskAttachmentAttach{Name: d.Name}})
	}

	return must(r.admin.InstanceCreate(r.t.Context(), oxide.InstanceCreateParams{Project: "demo", Body: &oxide.InstanceCreate{
		Name: oxide.Name(name), Hostname: oxide.Hostname(name), Description: description, Ncpus: 1, Memory: 1 << 30, Start: &start,
		NetworkInterfaces: oxide.InstanceNetworkInterfaceAttachment{Value: oxide.InstanceNetworkInterfaceAttachmentNone{}},
		Disks:             attached,
	}}))(r.t)
}

func (r *rig) disks(project string) map[string]oxide.Disk {
	r.t.Helper()

	all := map[string]oxide.Disk{}
	for _, d := range must(r.admin.DiskListAllPages(r.t.Context(), oxide.DiskListParams{Project: oxide.NameOrId(project)}))(r.t) {
		all[string(d.Name)] = d
	}

	return all
}

// outcome is what a removal came to.
type outcome struct {
	removed []string
	left    map[string]string // name to why
	look    *offboard.Look
}

func remove(t *testing.T, cfg offboard.Config) outcome {
	t.Helper()

	o := outcome{left: map[string]string{}}
	cfg.Removed = func(x offboard.Object) { o.removed = append(o.removed, x.Name) }

	left, look, err := offboard.New(cfg).Remove(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}

	for _, x := range left {
		o.left[x.Name] = x.Why
	}

	o.look = look

	return o
}

// Invariant: a project that is named and that the token has no role in is told of
// in one line, and the others are done. When there is no other, it is an error.
func TestARoleMissingInOneProjectIsSaidInOneLineAndTheRestGoesOn(t *testing.T) {
	t.Parallel()

	r := newRig(t)
	r.disk("demo", "first", marked(naming.KindData), blank)
	r.disk("second", "other", marked(naming.KindData), blank)

	c := r.as(simrack.Token{
		Value: "oxide-token-demo", User: "demo", ProjectRoles: map[string]simrack.Role{"demo": simrack.RoleLimitedCollaborator},
	})
	o := remove(t, offboard.Config{Rack: c, Projects: []string{"second", "demo"}})

	if !slices.Equal(o.removed, []string{"first"}) || len(o.left) != 0 {
		t.Errorf("removed %v, left %v", o.removed, o.left)
	}

	if len(o.look.Unread) != 1 || o.look.Unread[0] != `project "second" is not in the silo, or the token has no role in it` || o.look.Whole() {
		t.Errorf("told %q", o.look.Unread)
	}

	if len(r.disks("demo")) != 0 || len(r.disks("second")) != 1 {
		t.Errorf("there are %v and %v", r.disks("demo"), r.disks("second"))
	}

	if _, err := offboard.New(offboard.Config{Rack: c, Projects: []string{"second"}}).Look(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `project "second"`) || strings.Contains(err.Error(), "\n") {
		t.Errorf("nothing but it: %v", err)
	}
}

// Invariant: where the token may read and not delete, each object has a line, and
// the others are done.
func TestWhatTheTokenMayOnlyReadIsLeftAndTheRestGoesOn(t *testing.T) {
	t.Parallel()

	r := newRig(t)
	r.disk("demo", "first", marked(naming.KindData), blank)
	r.disk("second", "other", marked(naming.KindData), blank)

	o := remove(t, offboard.Config{Rack: r.as(simrack.Token{
		Value: "oxide-token-demo", User: "demo", SiloRole: simrack.RoleViewer,
		ProjectRoles: map[string]simrack.Role{"demo": simrack.RoleLimitedCollaborator},
	})})

	if !slices.Equal(o.removed, []string{"first"}) || len(o.left) != 1 || !strings.Contains(o.left["other"], "HTTP 403") {
		t.Errorf("removed %v, left %v", o.removed, o.left)
	}

	if len(r.disks("second")) != 1 {
		t.Error("what may only be read is gone")
	}
}

// Invariant: a stranger's disk on an instance of the owner's is set free by the
// instance's end and stays as it is; a disk of the owner's on a stranger's instance
// stays, as does the instance.
func TestAStrangersDiskOnOurInstanceStays(t *testing.T) {
	t.Parallel()

	r := newRig(t)
	own, strange := r.disk("demo", "own", marked(naming.KindBoot), blank), r.disk("demo", "strange", "By hand.", blank)
	lent := r.disk("demo", "lent", marked(naming.KindData), blank)

	r.instance("gone-1", marked(naming.KindInstance), true, own, strange)
	stranger := r.instance("stranger", "By hand.", false, lent)

	if d := r.disks("demo")["strange"]; d.State.State() == oxide.DiskStateStateDetached {
		t.Fatal("the stranger's disk is not attached")
	}

	o := remove(t, offboard.Config{Rack: r.as(simrack.Token{})})

	if !slices.Equal(o.removed, []string{"gone-1", "own"}) || len(o.left) != 1 || o.left["lent"] != "it is attached to instance "+stranger.Id {
		t.Errorf("removed %v, left %v", o.removed, o.left)
	}

	after := r.disks("demo")
	if d := after["strange"]; d.Id != strange.Id || d.Description != strange.Description || d.State.State() != oxide.DiskStateStateDetached {
		t.Errorf("the stranger's disk is %+v", d)
	}

	if a, ok := after["lent"].State.AsAttached(); !ok || a.Instance != stranger.Id || len(after) != 2 {
		t.Errorf("the disks are %v", after)
	}
}

// Invariant: images stay unless they are asked for, then go after all else, and not
// while a disk stems from them.
func TestImagesGoLastAndOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()

	r := newRig(t)
	source := r.disk("demo", "source", "By hand.", blank)
	snapshot := must(r.admin.SnapshotCreate(t.Context(), oxide.SnapshotCreateParams{Project: "demo", Body: &oxide.SnapshotCreate{
		Name: "of-hand", Description: "By hand.", Disk: oxide.NameOrId(source.Id),
	}}))(t)
	image := must(r.admin.ImageCreate(t.Context(), oxide.ImageCreateParams{Project: "demo", Body: &oxide.ImageCreate{
		Name: "talos", Os: "talos", Version: "1.13.5", Description: marked(naming.KindImage),
		Source: oxide.ImageSource{Value: oxide.ImageSourceSnapshot{Id: snapshot.Id}},
	}}))(t)
	must(r.admin.ImagePromote(t.Context(), oxide.ImagePromoteParams{Image: oxide.NameOrId(image.Id)}))(t)

	stems := oxide.DiskSource{Value: oxide.DiskSourceImage{ImageId: image.Id}}
	own, strange := r.disk("demo", "own", marked(naming.KindBoot), stems), r.disk("second", "strange", "By hand.", stems)
	r.instance("gone-1", marked(naming.KindInstance), true, own)

	c := r.as(simrack.Token{})

	for _, step := range []struct {
		images  bool
		removed []string
		why     string
	}{
		{false, []string{"gone-1", "own"}, "images stay unless --images is given"},
		{true, nil, `disk "strange" of project "second" stems from it`},
	} {
		o := remove(t, offboard.Config{Rack: c, Images: step.images})
		if !slices.Equal(o.removed, step.removed) || len(o.left) != 1 || o.left["talos"] != step.why {
			t.Errorf("with images %t: removed %v, left %v", step.images, o.removed, o.left)
		}
	}

	if err := r.admin.DiskDelete(t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(strange.Id)}); err != nil {
		t.Fatal(err)
	}

	r.instance("gone-1", marked(naming.KindInstance), true)

	if o := remove(t, offboard.Config{Rack: c, Images: true}); !slices.Equal(o.removed, []string{"gone-1", "talos"}) || len(o.left) != 0 {
		t.Errorf("in the end: removed %v, left %v", o.removed, o.left)
	}
}

// fading is a rack of one project with one disk, which the token can not see any
// more from the disk's removal on.
type fading struct {
	offboard.Rack

	byName bool // the project is hidden, and not only what is in it
	busy   int  // answers to come that are that the rack is busy

	mu     sync.Mutex
	hidden bool
}

func (f *fading) ViewProject(context.Context, string) (*oxide.Project, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.busy--; f.busy >= 0 {
		return nil, &rack.Error{Op: "reading the project", Class: rack.ClassBusy, Message: "maintenance"}
	}

	if f.hidden && f.byName {
		return nil, &rack.Error{Op: "reading the project", Class: rack.ClassGone, Message: "not found"}
	}

	return &oxide.Project{Id: "p", Name: "demo"}, nil
}

func (f *fading) seen(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.hidden {
		return &rack.Error{Op: op, Class: rack.ClassGone, Message: "not found"}
	}

	return nil
}

func (f *fading) ListInstances(context.Context, string) ([]oxide.Instance, error) {
	return nil, f.seen("listing instances")
}

func (f *fading) ListDisks(context.Context, string) ([]oxide.Disk, error) {
	d, err := f.ViewDisk(context.Background(), "d")
	if err != nil {
		return nil, err
	}

	return []oxide.Disk{*d}, nil
}

func (f *fading) ListSnapshots(context.Context, string) ([]oxide.Snapshot, error) {
	return nil, f.seen("listing snapshots")
}

func (f *fading) ListFloatingIPs(context.Context, string) ([]oxide.FloatingIp, error) {
	return nil, f.seen("listing floating IPs")
}

func (f *fading) ListAntiAffinityGroups(context.Context, string) ([]oxide.AntiAffinityGroup, error) {
	return nil, f.seen("listing groups")
}

func (f *fading) ListImages(context.Context, string) ([]oxide.Image, error) {
	return nil, f.seen("listing images")
}

func (f *fading) ViewDisk(context.Context, string) (*oxide.Disk, error) {
	return &oxide.Disk{
		Id: "d", Name: "data", Description: marked(naming.KindData), State: oxide.DiskState{Value: &oxide.DiskStateDetached{}},
	}, f.seen("reading the disk")
}

func (f *fading) DeleteDisk(context.Context, string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.hidden = true

	return &rack.Error{Op: "deleting the disk", Class: rack.ClassLost, Message: "no answer"}
}

// Invariant: gone is proved. An object whose project can not be read any more is
// not taken for removed, and the command ends all the same; a rack that is busy for
// a while ends nothing.
func TestWhatCanNotBeReadAnyMoreIsNotTakenForGone(t *testing.T) {
	t.Parallel()

	for _, byName := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &fading{byName: byName, busy: 3}
			o := remove(t, offboard.Config{Rack: &kept{f}, Projects: []string{"demo", "always"}})

			if len(o.removed) != 0 || o.left["data"] != "whether it is gone can not be read" || len(o.look.Unread) == 0 {
				t.Errorf("hidden %t: removed %v, left %v, told %v", byName, o.removed, o.left, o.look.Unread)
			}
		})
	}
}

// kept has another project besides, so that there is one to look at.
type kept struct{ *fading }

func (k *kept) ViewProject(ctx context.Context, name string) (*oxide.Project, error) {
	if name == "always" {
		return &oxide.Project{Id: "q", Name: "always"}, nil
	}

	return k.fading.ViewProject(ctx, name)
}

func (k *kept) ListDisks(ctx context.Context, projectID string) ([]oxide.Disk, error) {
	if projectID == "q" {
		return nil, nil
	}

	return k.fading.ListDisks(ctx, projectID)
}
