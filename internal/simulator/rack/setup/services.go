package setup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/controlplane"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/dns"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/underlay"
)

// callWithin bounds a call between services, in real time: all are in this
// process.
const callWithin = 5 * time.Second

// services are those that the sleds run, all in this process. Pantries and
// metrics are names here: the part of a pantry is played by the rack's API, and
// nobody reads a rack's metrics. So are external DNS servers: loopback has
// nobody who would ask them.
type services struct {
	store    store.Store
	clock    Clock
	log      *zap.Logger
	underlay underlay.Underlay
	database *controlplane.Database
	peers    controlplane.Peers

	mu      sync.Mutex
	dns     map[string]*dns.Server
	planes  []*controlplane.ControlPlane
	closers []func() error
	// told gets the first control plane that knows its rack.
	told    chan controlplane.HandOver
	waiting sync.WaitGroup
}

// newServices makes the services of a rack with its internal DNS servers at the
// given addresses.
func newServices(cfg Config, servers []netip.AddrPort) *services {
	s := &services{
		store: cfg.Store, clock: cfg.Clock, log: cfg.Log, database: controlplane.NewDatabase(cfg.Store),
		dns: map[string]*dns.Server{}, told: make(chan controlplane.HandOver, 1),
	}

	transport := &http.Transport{DialContext: s.underlay.DialContext}
	s.peers = controlplane.Peers{
		Resolver: &dns.Resolver{Servers: servers, Dial: s.underlay.DialContext},
		HTTP:     &http.Client{Transport: transport, Timeout: callWithin},
	}

	return s
}

// StartDNS is that of sled.Runner.
func (s *services) StartDNS(ctx context.Context, d plan.DNSServer) error {
	if d.Role == plan.DNSExternal {
		return nil
	}

	conn, err := s.underlay.ListenPacket(ctx, netip.AddrPortFrom(d.Address, plan.PortDNS))
	if err != nil {
		return err
	}

	server, err := dns.Serve(conn, s.store, d.ID)
	if err != nil {
		return errors.Join(err, conn.Close())
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.dns[d.ID] = server
	s.closers = append(s.closers, server.Close)

	return nil
}

// StartService is that of sled.Runner.
func (s *services) StartService(ctx context.Context, x plan.Service) error {
	switch x.Kind {
	case plan.Database:
		return s.startDatabase(ctx, x)
	case plan.ControlPlane:
		return s.startControlPlane(ctx, x)
	case plan.Pantry, plan.Metrics:
		return nil
	}

	return fmt.Errorf("the plan has a service of kind %q, which nobody knows", x.Kind)
}

func (s *services) startDatabase(ctx context.Context, x plan.Service) error {
	l, err := s.underlay.Listen(ctx, x.Address)
	if err != nil {
		return err
	}

	node := &http.Server{Handler: s.database.Handler(), ReadHeaderTimeout: callWithin, ErrorLog: zap.NewStdLog(s.log)}

	s.waiting.Go(func() {
		if err := node.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("a database node has ended", zap.Error(err))
		}
	})

	s.mu.Lock()
	defer s.mu.Unlock()

	//nolint:contextcheck // it ends when all else does
	s.closers = append(s.closers, func() error { return controlplane.Stop(node) })

	return nil
}

func (s *services) startControlPlane(ctx context.Context, x plan.Service) error {
	l, err := s.underlay.Listen(ctx, x.Address)
	if err != nil {
		return err
	}

	//nolint:contextcheck // it runs until it is closed
	c := controlplane.Start(controlplane.Config{ID: x.ID, Peers: s.peers, Clock: s.clock, Log: s.log}, l)
	closed := make(chan struct{})

	s.waiting.Go(func() {
		select {
		case <-c.Told():
			select {
			case s.told <- c.HandOver():
			default: // another was first
			}
		case <-closed:
		}
	})

	s.mu.Lock()
	defer s.mu.Unlock()

	s.planes = append(s.planes, c)
	//nolint:contextcheck // it ends when all else does
	s.closers = append(s.closers, func() error {
		close(closed)

		return c.Close()
	})

	return nil
}

// controlPlanes counts the running ones.
func (s *services) controlPlanes() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.planes)
}

// servers are the running internal DNS servers.
func (s *services) servers() []*dns.Server {
	s.mu.Lock()
	defer s.mu.Unlock()

	out := make([]*dns.Server, 0, len(s.dns))
	for _, d := range s.dns {
		out = append(out, d)
	}

	return out
}

// close ends all services, the last one started first.
func (s *services) close() error {
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()

	s.peers.HTTP.CloseIdleConnections()

	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i]())
	}

	s.waiting.Wait()

	return errors.Join(errs...)
}
