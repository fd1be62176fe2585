package setup

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/controlplane"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// described is a rack of n sleds whose pools are there at once.
func described(t *testing.T, n int) plan.Description {
	t.Helper()

	d, err := plan.Default(n)
	if err != nil {
		t.Fatal(err)
	}

	return d.AtOnce()
}

// upRack is a rack that comes up while the test looks.
type upRack struct {
	*Rack

	t      *testing.T
	cancel context.CancelFunc
	logs   *observer.ObservedLogs
	done   chan struct{}
	result controlplane.HandOver
	err    error
}

// comeUp starts a rack. It is ended with the test, or by end.
func comeUp(t *testing.T, cfg Config) *upRack {
	t.Helper()

	core, logs := observer.New(zapcore.DebugLevel)
	cfg.Log = zap.New(core)

	if cfg.Clock == nil {
		cfg.Clock = Scaled(0.001)
	}

	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	u := &upRack{Rack: r, t: t, cancel: cancel, logs: logs, done: make(chan struct{})}

	go func() {
		defer close(u.done)

		u.result, u.err = r.Run(ctx)
	}()

	t.Cleanup(u.end)

	return u
}

func (u *upRack) end() {
	u.t.Helper()
	u.cancel()
	<-u.done

	if err := u.Close(); err != nil {
		u.t.Errorf("closing the rack: %v", err)
	}
}

// handOver waits until the rack is ready.
func (u *upRack) handOver() controlplane.HandOver {
	u.t.Helper()

	select {
	case <-u.done:
	case <-time.After(20 * time.Second):
		u.t.Fatalf("the rack did not come up: %+v", u.State())
	}

	if u.err != nil {
		u.t.Fatal(u.err)
	}

	return u.result
}

// eventually waits for a condition.
func (u *upRack) eventually(what string, holds func() bool) {
	u.t.Helper()

	deadline := time.After(20 * time.Second)
	look := time.NewTicker(time.Millisecond)

	defer look.Stop()

	for !holds() {
		select {
		case <-deadline:
			u.t.Fatalf("waited for %s: %+v", what, u.State())
		case <-look.C:
		}
	}
}

func (u *upRack) said(part string) bool {
	return strings.Contains(strings.Join(u.State().Lines, "\n"), part)
}

var errCrash = errors.New("crash")

// crasher is a store, and a look at what is carried out, that ends everything at
// its nth point: nothing is stored after it, as nothing is after a kill.
type crasher struct {
	store.Store

	mu     sync.Mutex
	at     int // never, if 0
	passed int
	dead   bool
	where  string
}

// point is one instant at which a crash may come.
func (c *crasher) point(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.dead {
		return errCrash
	}

	if c.passed++; c.passed == c.at {
		c.dead, c.where = true, name

		return errCrash
	}

	return nil
}

func (c *crasher) Save(name string, value []byte) error {
	if err := c.point("before saving " + name); err != nil {
		return errors.Join(errEnd, err)
	}

	if err := c.Store.Save(name, value); err != nil {
		return err
	}

	if err := c.point("after saving " + name); err != nil {
		return errors.Join(errEnd, err)
	}

	return nil
}
