package lifetime_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/lifetime"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	owner     = "abcdefghijklmnopqrstuvwxyz"
	provider  = "oxide"
	project   = "p-1"
	fortnight = 14 * 24 * time.Hour
)

// world is a rack and an Omni. Nothing here runs side by side.
type world struct {
	images  map[string]oxide.Image // by ID
	disks   map[string]oxide.Disk
	wants   []lifetime.Want
	runs    []image.RunInfo
	uses    map[string]lifetime.Use
	fails   map[string]error // by call
	ended   map[string]func()
	partial bool
	deleted []string
	// refused says that the image manager does not give an image up; withdrawn are
	// those that it did.
	refused   bool
	withdrawn []string
	logs      *observer.ObservedLogs
}

func newWorld() *world {
	return &world{
		images: map[string]oxide.Image{}, disks: map[string]oxide.Disk{}, uses: map[string]lifetime.Use{},
		fails: map[string]error{}, ended: map[string]func(){},
	}
}

func identity(talos string) naming.ImageIdentity {
	return naming.ImageIdentity{Schematic: strings.Repeat("3765", 16), Talos: talos, Arch: "amd64", FactoryHost: "factory.talos.dev"}
}

// add puts an image of a Talos version into a project, or into the silo if in is
// empty, and answers its ID.
func (w *world) add(in, talos string, change ...func(*naming.Mark)) string {
	id := identity(talos)
	mark := naming.Mark{Owner: owner, Provider: provider, Kind: naming.KindImage, Key: id.Key(), Run: "0123abcd", Image: id.Mark()}

	for _, c := range change {
		c(&mark)
	}

	made := oxide.Image{
		Id: fmt.Sprintf("i-%d", len(w.images)+1), Name: oxide.Name(naming.Image(id)), Description: mark.Describe("Talos"), ProjectId: in,
		Size: 2 << 30, TimeCreated: new(time.Now()),
	}
	w.images[made.Id] = made

	return made.Id
}

func (w *world) call(name string) error {
	if then := w.ended[name]; then != nil {
		then()
	}

	return w.fails[name]
}

func (w *world) ListProjects(context.Context) ([]oxide.Project, error) {
	if w.partial {
		return nil, forbidden()
	}

	return []oxide.Project{{Id: project, Name: "talos"}, {Id: "p-2", Name: "other"}}, w.call("projects")
}

func (w *world) ViewProject(_ context.Context, name string) (*oxide.Project, error) {
	if name != project {
		return nil, &rack.Error{Op: "reading", Class: rack.ClassGone, Status: 404}
	}

	return &oxide.Project{Id: project, Name: "talos"}, w.call("project")
}

func (w *world) ListImages(_ context.Context, in string) ([]oxide.Image, error) {
	var all []oxide.Image

	for _, id := range slices.Sorted(maps.Keys(w.images)) {
		if w.images[id].ProjectId == in {
			all = append(all, w.images[id])
		}
	}

	return all, w.call("images " + in)
}

func (w *world) ListDisks(_ context.Context, in string) ([]oxide.Disk, error) {
	var all []oxide.Disk

	for _, d := range w.disks {
		if d.ProjectId == in {
			all = append(all, d)
		}
	}

	return all, w.call("disks " + in)
}

func (w *world) DeleteImage(_ context.Context, id string) error {
	if err := w.call("delete"); err != nil {
		return err
	}

	w.deleted = append(w.deleted, id)
	delete(w.images, id)

	return nil
}

func (w *world) Wants(context.Context) ([]lifetime.Want, error) { return w.wants, w.call("wants") }

func (w *world) Places(context.Context) ([]string, error) { return []string{project, "p-9"}, nil }

func (w *world) ImportRuns(context.Context) ([]image.RunInfo, error) { return w.runs, w.call("runs") }

func (w *world) ImageUses(context.Context) ([]lifetime.Use, error) {
	return slices.Collect(maps.Values(w.uses)), w.call("uses")
}

func (w *world) RecordUse(_ context.Context, u lifetime.Use) error {
	if err := w.call("record"); err != nil {
		return err
	}

	w.uses[u.ImageID] = u

	return nil
}

func (w *world) ForgetUse(_ context.Context, id string) error {
	if err := w.call("forget"); err != nil {
		return err
	}

	delete(w.uses, id)

	return nil
}

func (w *world) Withdraw(_ naming.Mark, id string, _ time.Time) (func(), bool) {
	if w.refused {
		return nil, false
	}

	w.withdrawn = append(w.withdrawn, id)

	return func() { w.withdrawn = slices.DeleteFunc(w.withdrawn, func(other string) bool { return other == id }) }, true
}

func forbidden() error { return &rack.Error{Op: "listing", Class: rack.ClassForbidden, Status: 403} }

func away() error { return &rack.Error{Op: "listing", Class: rack.ClassBusy, Status: 503} }

// start makes a lifetime that keeps nothing but what was used within a fortnight.
func (w *world) start(change ...func(*lifetime.Config)) *lifetime.Lifetime {
	core, logs := observer.New(zap.DebugLevel)
	w.logs = logs

	cfg := lifetime.Config{
		Rack: w, Omni: w, Images: w, Owner: owner, Provider: provider, Keep: lifetime.Keep{For: fortnight, Silo: true}, Log: zap.New(core),
	}
	for _, c := range change {
		c(&cfg)
	}

	return lifetime.New(cfg)
}

// pass takes a look each hour of the time.
func (w *world) pass(t *testing.T, l *lifetime.Lifetime, d time.Duration) {
	t.Helper()

	for ; d > 0; d -= time.Hour {
		time.Sleep(time.Hour)
		_ = l.Round(t.Context())
	}
}
