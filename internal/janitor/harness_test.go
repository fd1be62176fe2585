package janitor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/instance"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/janitor"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testOwner    = "abcdefghijklmnopqrstuvwxyz"
	testProvider = "oxide"
	testSilo     = "11111111-1111-4111-8111-111111111111"
	projectID    = "22222222-2222-4222-8222-222222222222"
	grace        = 10 * time.Minute
)

var errDead = errors.New("the process is dead")

// world is a rack and an Omni, with one log of all calls to both.
type world struct {
	t    *testing.T
	rack *fakeRack
	omni *fakeOmni
	logs *observer.ObservedLogs
	log  *zap.Logger

	mu  sync.Mutex
	ops []string
	// fails answers instead of an operation that begins so.
	fails map[string]error
	// before runs before an operation that begins so, once.
	before map[string]func()
	// dieAt kills the janitor before the call of that number from 1, or after it.
	dieAt    int
	dieAfter bool
	calls    int
	dead     bool
	die      context.CancelFunc

	brake string
}

func newWorld(t *testing.T) *world {
	t.Helper()

	core, logs := observer.New(zapcore.InfoLevel)
	w := &world{t: t, logs: logs, log: zap.New(core), fails: map[string]error{}, before: map[string]func(){}}
	w.rack, w.omni = newFakeRack(w), newFakeOmni(w)

	return w
}

// bubble runs a test on a world in fake time.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

// call does an operation, unless it fails or the process dies.
func (w *world) call(ctx context.Context, op string, f func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := ctx.Err(); err != nil {
		return err
	}

	if w.dead {
		return errDead
	}

	w.calls++
	dies := w.calls == w.dieAt

	if dies {
		w.dead = true
		w.die()

		if !w.dieAfter {
			return errDead
		}
	}

	for prefix, hook := range w.before {
		if strings.HasPrefix(op, prefix) {
			delete(w.before, prefix)
			hook()
		}
	}

	w.ops = append(w.ops, op)

	for prefix, err := range w.fails {
		if strings.HasPrefix(op, prefix) {
			return err
		}
	}

	if err := f(); err != nil || !dies {
		return err
	}

	return errDead
}

func (w *world) mark(id string, kind naming.Kind) naming.Mark {
	return naming.Mark{Owner: testOwner, Provider: testProvider, Kind: kind, Key: naming.RequestKey(id), Run: "0123abcd"}
}

func (w *world) config(change ...func(*janitor.Config)) janitor.Config {
	cfg := janitor.Config{
		Omni: w.omni, Rack: w.rack, Owner: testOwner, Provider: testProvider, Grace: grace, Settle: 2 * time.Minute,
		Braked: func(why string) { w.brake = why }, Log: w.log,
		Machines: instance.New(instance.Config{
			Rack: w.rack, Owner: testOwner, Provider: testProvider, Run: "0123abcd", MaxCreates: 4, Settle: 2 * time.Minute,
			Silo: func(context.Context) (string, error) { return w.rack.silo, nil },
		}),
	}
	for _, c := range change {
		c(&cfg)
	}

	return cfg
}

// run runs a janitor until stop is called or it dies.
func (w *world) run(change ...func(*janitor.Config)) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})

	w.mu.Lock()
	w.die, w.dead, w.calls = cancel, false, 0
	w.mu.Unlock()

	go func() {
		defer close(done)

		janitor.New(w.config(change...)).Run(ctx)
	}()

	return func() {
		cancel()
		<-done
	}
}

// runFor runs one for a time.
func (w *world) runFor(d time.Duration, change ...func(*janitor.Config)) {
	stop := w.run(change...)
	w.pass(d)
	stop()
}

// pass lets fake time pass, and everything settle.
func (w *world) pass(d time.Duration) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// changes are the operations that change something.
func (w *world) changes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	var out []string

	for _, op := range w.ops {
		for _, verb := range []string{"rack stop", "rack delete", "omni destroy", "omni tidy", "omni release"} {
			if strings.HasPrefix(op, verb) {
				out = append(out, op)
			}
		}
	}

	return out
}

func (w *world) untouched(what string) {
	w.t.Helper()

	if c := w.changes(); len(c) > 0 {
		w.t.Errorf("%s: %q", what, c)
	}
}

func (w *world) logged(part string) int {
	n := 0

	for _, e := range w.logs.All() {
		if strings.Contains(e.Message, part) {
			n++
		}
	}

	return n
}
