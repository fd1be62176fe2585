package watcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an Omni, a rack and a watcher between them, in fake time.
type world struct {
	t *testing.T

	mu        sync.Mutex
	machines  map[string]Machine
	instances map[string]*oxide.Instance
	errs      map[string]error // by project
	omniErr   error
	startErr  error
	// afterList is called once after each list of the rack.
	afterList func()
	unwanted  map[string]bool

	lists, omniLists int
	listed, started  []string

	board *health.Board
	logs  *observer.ObservedLogs
	w     *Watcher
}

const joinTime = 15 * time.Minute

// watch runs a watcher in fake time.
func watch(t *testing.T, test func(w *world)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.InfoLevel)
		w := &world{
			t: t, machines: map[string]Machine{}, instances: map[string]*oxide.Instance{}, errs: map[string]error{},
			unwanted: map[string]bool{}, board: health.NewBoard(zap.NewNop()), logs: logs,
		}
		w.w = New(Config{
			Rack: w, Omni: w, JoinTime: joinTime, Board: w.board, Logger: zap.New(core),
			Ours: func(description, id string) bool { return description == "ours "+id },
		})

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})

		go func() {
			defer close(done)

			w.w.Run(ctx)
		}()

		test(w)
		cancel()
		<-done
	})
}

// add makes a machine that runs and has joined.
func (w *world) add(id string, change ...func(*Machine)) {
	w.mu.Lock()
	defer w.mu.Unlock()

	m := Machine{
		RequestID: id, InstanceID: "i-" + id, InstanceName: id, ProjectID: "p", ProjectName: "demo",
		RunningSince: time.Now(), Joined: true,
	}
	for _, c := range change {
		c(&m)
	}

	w.machines[id] = m
	w.instances[m.InstanceID] = &oxide.Instance{
		Id: m.InstanceID, ProjectId: m.ProjectID, RunState: oxide.InstanceStateRunning, Description: "ours " + id,
	}
}

func (w *world) state(id string, s oxide.InstanceState) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.instances["i-"+id].RunState = s
}

func (w *world) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()

	f()
}

// Machines implements Omni.
func (w *world) Machines(context.Context) ([]Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.omniLists++

	var all []Machine
	for _, m := range w.machines {
		all = append(all, m)
	}

	return all, w.omniErr
}

// Wanted implements Omni.
func (w *world) Wanted(_ context.Context, id string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	_, there := w.machines[id]

	return there && !w.unwanted[id], nil
}

// SeekInstances implements Rack. It lists all.
func (w *world) SeekInstances(_ context.Context, project string, _ rack.Enough[oxide.Instance]) ([]oxide.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.lists++
	w.listed = append(w.listed, project)

	if w.afterList != nil {
		defer func() { w.afterList(); w.afterList = nil }()
	}

	if err := w.errs[project]; err != nil {
		return nil, err
	}

	var all []oxide.Instance

	for _, i := range w.instances {
		if i.ProjectId == project {
			all = append(all, *i)
		}
	}

	return all, nil
}

// StartInstance implements Rack.
func (w *world) StartInstance(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.started = append(w.started, id)

	return w.startErr
}

// pass lets rounds go by.
func (w *world) pass(d time.Duration) {
	// What the test has read before is not written until now, nor what is read
	// after.
	w.do(func() {})
	<-time.After(d)
	synctest.Wait()
	w.do(func() {})
}

func (w *world) health() string {
	if err := w.board.Err(); err != nil {
		return err.Error()
	}

	return ""
}

// lines are the log so far, as "level found request".
func (w *world) lines() string {
	var out []string

	for _, e := range w.logs.All() {
		f := e.ContextMap()
		out = append(out, strings.TrimSpace(fmt.Sprint(e.Level, " ", f["found"], " ", f["omni.request.id"])))
	}

	return strings.Join(out, "|")
}

var errLost = &rack.Error{Class: rack.ClassLost, Message: "connection refused"}

var errOmni = errors.New("omni is away")
