package omni

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/omni/client/api/omni/specs"
	"github.com/siderolabs/omni/client/pkg/omni/resources/siderolink"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

// helloTimeout bounds how long a guest that dialled may keep silent.
const helloTimeout = 30 * time.Second

// links serves the guests that have joined. It stands for WireGuard and for the
// Talos API behind it.
type links struct {
	state  state.State
	log    *zap.Logger
	config Config
	// changed wakes the controllers.
	changed chan struct{}

	sessions sync.WaitGroup

	mu   sync.Mutex
	live map[string]*session
	// lost is when a machine's link was last seen to break.
	lost map[string]time.Time
}

func newLinks(st state.State, config Config) *links {
	return &links{
		state: st, log: config.Log, config: config, changed: make(chan struct{}, 1),
		live: map[string]*session{}, lost: map[string]time.Time{},
	}
}

func (l *links) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// serve accepts guests until ctx ends, and then cuts them off.
func (l *links) serve(ctx context.Context, listener net.Listener) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()

	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				l.log.Error("accepting guests ended", zap.Error(err))
			}

			return
		}

		l.sessions.Go(func() { l.welcome(ctx, conn) })
	}
}

// wait returns when all sessions have ended.
func (l *links) wait() { l.sessions.Wait() }

// welcome takes a guest's greeting and serves it until its link breaks.
func (l *links) welcome(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	lc := link.NewConn(conn)
	defer lc.Close() //nolint:errcheck // it has ended

	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))

	message, err := lc.Receive()
	if err != nil || message.Hello == nil {
		l.log.Debug("a guest did not introduce itself", zap.Error(err))

		return
	}

	_ = conn.SetReadDeadline(time.Time{})

	hello := *message.Hello
	if !l.admitted(ctx, hello) {
		l.log.Info("a guest that was not admitted was turned away", zap.String("omni.machine.id", hello.UUID))

		return
	}

	current := newSession(lc, hello, l.wake)
	l.enter(current)

	current.receive()

	l.leave(current)
}

// admitted says whether a guest's link is the one that Provision granted.
func (l *links) admitted(ctx context.Context, hello link.Hello) bool {
	granted, ok, err := get[*siderolink.Link](ctx, l.state, siderolink.NewLink(hello.UUID, &specs.SiderolinkSpec{}).Metadata())

	return err == nil && ok && running(granted) && granted.TypedSpec().Value.GetNodePublicKey() == hello.NodePublicKey
}

func (l *links) enter(current *session) {
	l.mu.Lock()
	previous := l.live[current.hello.UUID]
	l.live[current.hello.UUID] = current
	delete(l.lost, current.hello.UUID)
	l.mu.Unlock()

	if previous != nil {
		previous.close()
	}

	l.log.Debug("a guest is connected", zap.String("omni.machine.id", current.hello.UUID), zap.String("stage", string(current.hello.Stage)))
	l.wake()
}

func (l *links) leave(current *session) {
	current.fail()

	l.mu.Lock()

	if l.live[current.hello.UUID] == current {
		delete(l.live, current.hello.UUID)
		l.lost[current.hello.UUID] = time.Now()
	}

	l.mu.Unlock()

	l.wake()
}

// session returns the machine's link, nil when it has none.
func (l *links) session(uuid string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.live[uuid]
}

// connected says whether Omni calls the machine connected, and after how long
// that changes by itself.
func (l *links) connected(uuid string) (connected bool, changes time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.live[uuid] != nil {
		return true, 0
	}

	lost, ok := l.lost[uuid]
	if !ok {
		return false, 0
	}

	rest := l.config.scaled(connectedTimeout) - time.Since(lost)

	return rest > 0, max(rest, 0)
}

// Disconnect cuts a machine's link; the guest may dial again. It reports
// whether there was one.
func (s *Server) Disconnect(uuid string) bool {
	current := s.links.session(uuid)
	if current == nil {
		return false
	}

	current.close()

	return true
}
