package provider

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/siderolabs/omni/client/pkg/client"
	"google.golang.org/grpc"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simomni "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// replica is one process of the daemon, with all its ways out in one hand.
type replica struct {
	*served

	cord   *cord
	images *talos.Factory
	rack   *rack.Client
	// back is when the next process begins, zero while this one lives.
	back time.Time
}

// begin begins a process in the place of one that has ended or is dead.
func (s *storm) begin(i int) {
	s.t.Helper()

	r := &replica{cord: &cord{}}
	r.images = talos.NewFactory(talos.FactoryConfig{HTTP: &http.Client{
		Transport: &http.Transport{DialContext: dialTCP(r.cord.through(s.net.dialer(factoryName)))},
	}})

	var err error

	r.rack, err = rack.New(rack.Config{
		Host: "http://rack.test", Token: daemonSecret, UserAgent: version.UserAgent(),
		Transport: &http.Transport{DialContext: dialTCP(r.cord.through(s.net.dialer("rack")))},
	})
	s.ok(err)

	before := s.replicas[i]

	r.served = s.run(leased, func(o *Options) {
		o.Host = "host-" + string(rune('a'+i))
		o.Rack, o.Factory = r.rack, r.images
		o.Omni.Options = []client.Option{client.WithGrpcOpts(grpc.WithContextDialer(r.cord.through(s.net.dialer(simomni.ListenerGRPC))))}
		o.Concurrency, o.Janitor, o.JanitorGrace = 10, JanitorOn, janitorGrace
	})
	s.replicas[i] = r

	if before != nil {
		before.end(s.bench)
	}
}

// kill is as SIGKILL: from now on nothing of the process reaches anybody. What
// it has sent is under way.
func (r *replica) kill(back time.Time) {
	if r.back.IsZero() {
		r.cord.sever()
		r.cancel()
	}

	r.back = back
}

// end ends the process, as SIGTERM does one that is alive.
func (r *replica) end(b *bench) {
	b.t.Helper()

	killed := !r.back.IsZero()

	if err := r.stop(); err != nil && !killed {
		b.t.Errorf("a replica ended with %v", err)
	}

	r.cord.sever()
	r.images.Close()
	r.rack.Close()
}

// cord is all connections of a process.
type cord struct {
	mu      sync.Mutex
	severed bool
	conns   []net.Conn
}

// through dials unless the cord is severed.
func (c *cord) through(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		c.mu.Lock()
		severed := c.severed
		c.mu.Unlock()

		if severed {
			return nil, errRefused
		}

		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}

		c.mu.Lock()
		defer c.mu.Unlock()

		if c.severed {
			_ = conn.Close()

			return nil, errRefused
		}

		c.conns = append(c.conns, conn)

		return conn, nil
	}
}

func (c *cord) sever() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.severed = true

	for _, conn := range c.conns {
		_ = conn.Close()
	}
}
