package controlplane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
)

// askEvery is how often the database is asked for the hand-over.
const askEvery = 2 * time.Second

// Clock is the time that a rack lives in.
type Clock interface {
	After(d time.Duration) <-chan time.Time
}

// Config is what a control plane is started with.
type Config struct {
	ID    string
	Peers Peers
	Clock Clock
	Log   *zap.Logger
}

// ControlPlane is one of a rack's control planes, with its internal interface.
type ControlPlane struct {
	cfg    Config
	server *http.Server
	cancel context.CancelFunc
	done   sync.WaitGroup

	told     chan struct{}
	handOver HandOver // written before told is closed
}

// Start serves the internal interface and begins to ask. Close ends it.
func Start(cfg Config, internal net.Listener) *ControlPlane {
	ctx, cancel := context.WithCancel(context.Background())
	cfg.Log = cfg.Log.With(zap.String("control_plane.id", cfg.ID))

	c := &ControlPlane{cfg: cfg, cancel: cancel, told: make(chan struct{})}
	c.server = &http.Server{Handler: c.internal(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: zap.NewStdLog(cfg.Log)}

	c.done.Go(func() {
		if err := c.server.Serve(internal); !errors.Is(err, http.ErrServerClosed) {
			cfg.Log.Error("the internal interface has ended", zap.Error(err))
		}
	})
	c.done.Go(func() { c.ask(ctx) })

	return c
}

// Told is closed when the control plane knows its rack.
func (c *ControlPlane) Told() <-chan struct{} { return c.told }

// HandOver is what it was told; only after Told was closed.
func (c *ControlPlane) HandOver() HandOver { return c.handOver }

// Close ends the control plane and waits for it.
func (c *ControlPlane) Close() error {
	c.cancel()
	err := Stop(c.server)
	c.done.Wait()

	return err
}

// stopWithin is how long calls in flight may take when a service ends.
const stopWithin = time.Second

// Stop ends a server, and waits for what it is doing.
func Stop(s *http.Server) error {
	// What ends it must not cut this short.
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()

	if s.Shutdown(ctx) == nil {
		return nil
	}

	return s.Close()
}

// ask asks the database until it knows of the hand-over. It goes by nothing
// else, not even by a hand-over that it took itself.
func (c *ControlPlane) ask(ctx context.Context) {
	for {
		h, err := c.cfg.Peers.readRack(ctx)

		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			c.handOver = h
			close(c.told)

			return
		case !errors.Is(err, errNotTold):
			c.cfg.Log.Warn("can not read whether the rack has been handed over, asking again", zap.Error(err))
		}

		select {
		case <-ctx.Done():
			return
		case <-c.cfg.Clock.After(askEvery):
		}
	}
}
