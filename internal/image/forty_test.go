package image_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// ownRack is the rack as one daemon uses it. It counts its uploads, and tells
// each call that changes an object of somebody else's.
type ownRack struct {
	*fakeRack

	t     *testing.T
	owner string

	mu            sync.Mutex
	begun         int
	running, peak int
}

func (r *ownRack) disk(id, call string) {
	r.fakeRack.mu.Lock()
	defer r.fakeRack.mu.Unlock()

	if d := r.disks[id]; d != nil {
		r.own(d.Description, call)
	}
}

func (r *ownRack) own(description, call string) {
	if mark, ok := naming.Parse(description); !ok || mark.Owner != r.owner {
		r.t.Errorf("%s of what is another's: %s", call, description)
	}
}

func (r *ownRack) StartBulkWrite(ctx context.Context, id string) error {
	r.disk(id, "start")

	r.mu.Lock()
	r.begun++
	r.running++
	r.peak = max(r.peak, r.running)
	r.mu.Unlock()

	return r.fakeRack.StartBulkWrite(ctx, id)
}

func (r *ownRack) BulkWrite(ctx context.Context, id string, offset uint64, data []byte) error {
	r.disk(id, "write")

	return r.fakeRack.BulkWrite(ctx, id, offset, data)
}

func (r *ownRack) StopBulkWrite(ctx context.Context, id string) error {
	r.disk(id, "stop")

	r.mu.Lock()
	r.running--
	r.mu.Unlock()

	return r.fakeRack.StopBulkWrite(ctx, id)
}

func (r *ownRack) FinalizeImport(ctx context.Context, id, snapshot string) error {
	r.disk(id, "finalize")

	return r.fakeRack.FinalizeImport(ctx, id, snapshot)
}

func (r *ownRack) DeleteDisk(ctx context.Context, id string) error {
	r.disk(id, "delete")

	return r.fakeRack.DeleteDisk(ctx, id)
}

func (r *ownRack) DeleteSnapshot(ctx context.Context, id string) error {
	r.fakeRack.mu.Lock()
	disk := ""

	if s := r.snapshots[id]; s != nil {
		disk = s.DiskId
	}
	r.fakeRack.mu.Unlock()

	r.disk(disk, "delete the snapshot")

	return r.fakeRack.DeleteSnapshot(ctx, id)
}

func (r *ownRack) DeleteImage(ctx context.Context, id string) error {
	r.fakeRack.mu.Lock()
	if i := r.images[id]; i != nil {
		r.own(i.Description, "delete the image")
	}
	r.fakeRack.mu.Unlock()

	return r.fakeRack.DeleteImage(ctx, id)
}

// Invariant: forty requests for four images at once, by two daemons in one
// project, come to four images; no daemon uploads more than four, nor more at
// once than it may, and neither touches the other's scratch.
func TestFortyRequestsForFourImagesByTwoDaemons(t *testing.T) {
	t.Parallel()

	for _, uploads := range []int{4, 2} {
		for _, scope := range []image.Scope{image.ScopeAuto, image.ScopeProject} {
			t.Run(fmt.Sprintf("%s, %d at once", scope, uploads), func(t *testing.T) {
				t.Parallel()
				forty(t, uploads, scope)
			})
		}
	}
}

func forty(t *testing.T, uploads int, scope image.Scope) {
	t.Helper()

	w := newWorld()
	w.source.build = 30 * time.Second
	w.rack.delays["write"] = time.Second
	w.rack.delays["create image"] = time.Second

	synctest.Test(t, func(t *testing.T) {
		owners := []string{strings.Repeat("a", 26), strings.Repeat("b", 26)}
		racks := make([]*ownRack, len(owners))
		managers := make([]*image.Manager, len(owners))
		stops := make([]func(), len(owners))

		for i, o := range owners {
			racks[i] = &ownRack{fakeRack: w.rack, t: t, owner: o}
			managers[i], stops[i] = w.start(t, fmt.Sprintf("0a1b2c3%d", i), func(c *image.Config) {
				c.Rack, c.Owner, c.Provider, c.Uploads, c.Scope = racks[i], o, fmt.Sprintf("oxide-%d", i), uploads, scope
			})
		}

		var (
			group sync.WaitGroup
			mu    sync.Mutex
			used  = map[string]map[string]bool{}
		)

		for n := range 40 {
			group.Go(func() {
				wanted := want()
				wanted.Identity.Schematic = strings.Repeat(fmt.Sprintf("%04d", n%4), 16)
				s := until(t, managers[n/4%2], wanted, 30*time.Minute)

				mu.Lock()
				defer mu.Unlock()

				if used[wanted.Identity.Schematic] == nil {
					used[wanted.Identity.Schematic] = map[string]bool{}
				}

				used[wanted.Identity.Schematic][s.ImageID] = true
			})
		}

		group.Wait()
		settle(t, w, 5*time.Minute)

		if images := w.rack.imageList(); len(images) != 4 || len(used) != 4 {
			t.Errorf("%d images, %d of them used", len(images), len(used))
		}

		for schematic, ids := range used {
			if len(ids) != 1 {
				t.Errorf("%d images of schematic %.8s are used", len(ids), schematic)
			}
		}

		for i, r := range racks {
			if r.begun > 4 || r.peak > uploads {
				t.Errorf("daemon %d: %d uploads, %d at once", i, r.begun, r.peak)
			}

			stops[i]()
		}

		w.rack.checkEmpty(t)
	})
}
