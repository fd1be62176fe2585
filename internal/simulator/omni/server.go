package omni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/go-api-signature/pkg/pgp"
	"github.com/siderolabs/omni/client/api/omni/management"
	"github.com/siderolabs/omni/client/pkg/compression"
	"github.com/siderolabs/omni/client/pkg/constants"
	_ "github.com/siderolabs/proto-codec/codec" // the codec of Omni's own server
	pb "github.com/siderolabs/siderolink/api/siderolink"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // clients of Omni compress
	"google.golang.org/grpc/keepalive"
)

// Server is a simulated Omni. Its resources and keys outlive Stop and Start.
type Server struct {
	config    Config
	log       *zap.Logger
	state     state.State
	gate      *gate
	keys      *keyring
	calls     *callLog
	streams   *streams
	bookmarks *bookmarks
	links     *links

	mu     sync.Mutex
	active *activity
	// defined says that the resource types were registered.
	defined bool

	addressesMu sync.Mutex
	addresses   map[string]string
}

// activity is what runs between Start and Stop.
type activity struct {
	cancel      context.CancelFunc
	wg          sync.WaitGroup
	api         *grpc.Server
	machineAPI  *grpc.Server
	control     *http.Server
	connections *connections
}

// New makes a server that does not listen yet.
func New(config Config) (*Server, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configuring the simulated Omni: %w", err)
	}

	if err := compression.InitConfig(true); err != nil {
		return nil, fmt.Errorf("configuring compression: %w", err)
	}

	st := state.WrapCore(newStore(config.DataDir))

	return &Server{
		config:    config,
		log:       config.Log,
		state:     st,
		gate:      &gate{store: st, validate: &validator{state: st}, faults: &faults{}},
		keys:      &keyring{state: st, parsed: map[string]*pgp.Key{}},
		calls:     &callLog{before: config.BeforeCall, after: config.AfterCall},
		streams:   &streams{open: map[*openStream]struct{}{}},
		bookmarks: &bookmarks{},
		links:     newLinks(st, config),
		addresses: map[string]string{
			ListenerGRPC: config.GRPCListen, ListenerMachineAPI: config.MachineAPIListen,
			ListenerLink: config.LinkListen, ListenerControl: config.ControlListen,
		},
	}, nil
}

// Start listens and runs the controllers. After Stop it listens on the same
// addresses again. The context gives values only: Stop and Close end what runs.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.active != nil {
		return errors.New("the simulated Omni is running already")
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))

	listeners, err := s.listen(ctx)
	if err == nil {
		if err = s.seed(ctx); err != nil {
			closeAll(listeners)
		}
	}

	if err != nil {
		cancel()

		return err
	}

	active := &activity{cancel: cancel, connections: &connections{open: map[net.Conn]struct{}{}}}
	s.active = active

	s.serveAPI(active, listeners[ListenerGRPC])
	s.serveMachineAPI(active, listeners[ListenerMachineAPI])
	s.serveControl(ctx, active, listeners[ListenerControl])

	active.wg.Go(func() { s.links.serve(ctx, listeners[ListenerLink]) })
	active.wg.Go(func() { newControllers(s).run(ctx) })

	return nil
}

// listen opens the listeners and remembers their addresses.
func (s *Server) listen(ctx context.Context) (map[string]net.Listener, error) {
	s.addressesMu.Lock()
	defer s.addressesMu.Unlock()

	opened := map[string]net.Listener{}

	for _, name := range []string{ListenerGRPC, ListenerMachineAPI, ListenerLink, ListenerControl} {
		if s.addresses[name] == "" {
			continue
		}

		listener, err := s.config.Listen(ctx, name, s.addresses[name])
		if err != nil {
			closeAll(opened)

			return nil, fmt.Errorf("listening for %s: %w", name, err)
		}

		opened[name] = listener
		s.addresses[name] = listener.Addr().String()
	}

	return opened, nil
}

func closeAll(listeners map[string]net.Listener) {
	for _, listener := range listeners {
		_ = listener.Close()
	}
}

func (s *Server) serveAPI(active *activity, listener net.Listener) {
	active.api = grpc.NewServer(
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.SharedWriteBuffer(true),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		// Omni serves gRPC through net/http, which does not count pings.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
	)

	v1alpha1.RegisterStateServer(active.api, server.NewState(s.gate))
	management.RegisterManagementServiceServer(active.api, newManagementService(s.config))

	active.wg.Go(func() {
		s.serve("the Omni API", active.api, &countedListener{Listener: listener, connections: active.connections})
	})
}

func (s *Server) serveMachineAPI(active *activity, listener net.Listener) {
	active.machineAPI = grpc.NewServer(grpc.WaitForHandlers(true))

	pb.RegisterProvisionServiceServer(active.machineAPI, &provisioner{server: s})

	active.wg.Go(func() { s.serve("the machine API", active.machineAPI, listener) })
}

func (s *Server) serve(what string, server *grpc.Server, listener net.Listener) {
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		s.log.Error("serving "+what+" ended", zap.Error(err))
	}
}

// Stop ends all that runs: listeners are closed, connections and streams cut.
func (s *Server) Stop() {
	s.mu.Lock()
	active := s.active
	s.active = nil
	s.mu.Unlock()

	if active == nil {
		return
	}

	active.cancel()
	active.api.Stop()
	active.machineAPI.Stop()

	if active.control != nil {
		_ = active.control.Close()
	}

	active.wg.Wait()
	s.links.wait()
	s.gate.filters.Wait()
}

// Close stops the server for good.
func (s *Server) Close() error {
	s.Stop()

	return nil
}

// Endpoint is the URL of the Omni API, in the form that clients take as
// plaintext.
func (s *Server) Endpoint() string {
	if s.config.Endpoint != "" {
		return s.config.Endpoint
	}

	return "grpc://" + s.Address(ListenerGRPC)
}

// MachineAPIURL is where guests join.
func (s *Server) MachineAPIURL() string {
	if s.config.MachineAPIURL != "" {
		return s.config.MachineAPIURL
	}

	return "grpc://" + s.Address(ListenerMachineAPI)
}

// LinkEndpoint is the host:port that guests dial once they were admitted.
func (s *Server) LinkEndpoint() string {
	if s.config.LinkEndpoint != "" {
		return s.config.LinkEndpoint
	}

	return s.Address(ListenerLink)
}

// Address is the host:port of a listener by its name.
func (s *Server) Address(name string) string {
	s.addressesMu.Lock()
	defer s.addressesMu.Unlock()

	return s.addresses[name]
}
