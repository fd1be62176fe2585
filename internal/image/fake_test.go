package image_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// journal is the one order of all calls to the rack, the factory and Omni.
type journal struct {
	mu  sync.Mutex
	ops []string
}

func (j *journal) add(op string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	j.ops = append(j.ops, op)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.Clone(j.ops)
}

func (j *journal) count(op string) int {
	n := 0

	for _, o := range j.all() {
		if o == op {
			n++
		}
	}

	return n
}

// fault decides what becomes of the n-th call, from 1, of an operation: whether
// it has its effect, and its error.
type fault func(n int) (effect bool, err error)

// times fails the calls first to last without effect.
func times(first, last int, err error) fault {
	return func(n int) (bool, error) {
		if n >= first && n <= last {
			return false, err
		}

		return true, nil
	}
}

// lost has its effect each time and loses the first answer.
func lost(n int) (bool, error) {
	if n == 1 {
		return true, errOf(rack.ClassLost, 0)
	}

	return true, nil
}

func errOf(c rack.Class, status int) error {
	return &rack.Error{Op: "calling the rack", Class: c, Status: status, Message: "injected " + c.String()}
}

type fakeDisk struct {
	oxide.Disk
	state    oxide.DiskStateState
	data     map[uint64][]byte
	detachAt time.Time // while finalizing
	snapshot string    // made when finalizing ends
}

type fakeSnapshot struct {
	oxide.Snapshot
	data      map[uint64][]byte
	visibleAt time.Time
}

type fakeImage struct {
	oxide.Image
	data map[uint64][]byte
}

// life is a process that can be killed: from its killAt-th call on, counted
// over rack and Omni, nothing that it does has an effect. With last the call
// itself still has its own.
type life struct {
	mu     sync.Mutex
	calls  int
	killAt int
	last   bool
	killed chan struct{}
}

type lifeKey struct{}

// lives counts a call and tells whether it has an effect and an answer.
func lives(ctx context.Context) (effect, answer bool) {
	l, ok := ctx.Value(lifeKey{}).(*life)
	if !ok {
		return true, true
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.calls++
	if l.calls == l.killAt {
		close(l.killed)
	}

	return l.calls < l.killAt || l.calls == l.killAt && l.last, l.calls < l.killAt
}

// fakeRack keeps the rack's rules on states, names and places.
type fakeRack struct {
	*journal

	mu        sync.Mutex
	disks     map[string]*fakeDisk
	snapshots map[string]*fakeSnapshot
	images    map[string]*fakeImage
	calls     map[string]int
	faults    map[string]fault
	delays    map[string]time.Duration

	finalizing  time.Duration // how long a disk stays so after the call's answer
	snapshotLag time.Duration // how much later the snapshot is seen
	onCreate    func(disk string)
	onWrite     func(disk string, offset uint64, n int) error
	quota       uint64 // of storage in bytes, unlimited if 0
	deleting    int    // deletions of disks and snapshots under way
}

var (
	_ image.Rack = (*rack.Client)(nil)
	_ image.Rack = (*fakeRack)(nil)
)

func newRack(j *journal) *fakeRack {
	return &fakeRack{
		journal: j, disks: map[string]*fakeDisk{}, snapshots: map[string]*fakeSnapshot{}, images: map[string]*fakeImage{},
		calls: map[string]int{}, faults: map[string]fault{}, delays: map[string]time.Duration{},
	}
}

// call runs f under the lock as one call. The rack finishes what it began
// although the caller has gone.
func (r *fakeRack) call(ctx context.Context, op string, f func() error) error {
	r.add(op)
	r.mu.Lock()
	delay := r.delays[op]
	r.mu.Unlock()

	gone := ctx.Err() != nil

	if delay > 0 && !gone {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			gone = true
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.settle()
	r.calls[op]++

	effect, err := true, error(nil)
	if fault := r.faults[op]; fault != nil {
		effect, err = fault(r.calls[op])
	}

	if e, answer := lives(ctx); !answer {
		effect, err = effect && e, errOf(rack.ClassLost, 0)
	}

	if effect {
		if e := f(); e != nil && err == nil {
			err = e
		}
	}

	if gone {
		return fmt.Errorf("%w: %w", errOf(rack.ClassLost, 0), context.Cause(ctx))
	}

	return err
}

// settle ends the finalizing whose time has come.
func (r *fakeRack) settle() {
	for _, d := range r.disks {
		if d.state == oxide.DiskStateStateFinalizing && !time.Now().Before(d.detachAt) {
			d.state = oxide.DiskStateStateDetached

			if d.snapshot != "" {
				r.addSnapshot(d, d.snapshot, "snapshot of finalized disk "+string(d.Name), d.detachAt.Add(r.snapshotLag))
			}
		}
	}
}

func (r *fakeRack) addSnapshot(d *fakeDisk, name, description string, visibleAt time.Time) {
	id := uuid.NewString()
	r.snapshots[id] = &fakeSnapshot{
		Snapshot: oxide.Snapshot{
			Id: id, Name: oxide.Name(name), Description: description, DiskId: d.Id, ProjectId: d.ProjectId,
			Size: d.Size, State: oxide.SnapshotStateReady,
		},
		data: maps.Clone(d.data), visibleAt: visibleAt,
	}
}

func notFound(kind, what string) error {
	return &rack.Error{Op: "reading", Class: rack.ClassGone, Status: 404, Message: "not found: " + kind + " " + what}
}

func exists(kind, name string) error {
	return &rack.Error{Op: "creating", Class: rack.ClassExists, Status: 400, Message: fmt.Sprintf("already exists: %s %q", kind, name)}
}

func invalid(format string, args ...any) error {
	return &rack.Error{Op: "changing", Class: rack.ClassInvalid, Status: 400, Message: fmt.Sprintf(format, args...)}
}

// left names what there is besides images.
func (r *fakeRack) left() []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.settle()

	var all []string

	for _, d := range r.disks {
		all = append(all, fmt.Sprintf("disk %s in %s, %s", d.Name, d.ProjectId, d.state))
	}

	for _, s := range r.snapshots {
		all = append(all, fmt.Sprintf("snapshot %s in %s", s.Name, s.ProjectId))
	}

	return all
}

func (r *fakeRack) imageList() []*fakeImage {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Collect(maps.Values(r.images))
}

// set changes the rack's behaviour while it is used.
func (r *fakeRack) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()

	f()
}

func (r *fakeRack) checkEmpty(t *testing.T) {
	t.Helper()

	if left := r.left(); len(left) > 0 {
		t.Errorf("left over: %s", strings.Join(left, "; "))
	}

	if r.count("two deletions at once") > 0 {
		t.Error("deletions ran side by side")
	}
}
