package omni

import (
	"context"
	"errors"
	"net"
	"time"

	"go.uber.org/zap"
)

// The listeners of a server, as they are named to Config.Listen.
const (
	// ListenerGRPC serves the Omni API.
	ListenerGRPC = "grpc"
	// ListenerMachineAPI serves SideroLink's provision call.
	ListenerMachineAPI = "machine-api"
	// ListenerLink serves the links of guests that have joined.
	ListenerLink = "link"
	// ListenerControl serves the control endpoint.
	ListenerControl = "control"
)

const (
	defaultAddress = "127.0.0.1:0"
	defaultVersion = "v1.9.3"

	// connectedTimeout is how long Omni still calls a machine connected that
	// has gone away: it goes by the age of the last WireGuard handshake.
	connectedTimeout = 275 * time.Second

	// resetTimeout bounds the last reset of a machine that leaves Omni.
	resetTimeout = 10 * time.Second

	// retryInterval is how long a controller that failed waits.
	retryInterval = time.Second
)

// Config says where a server listens and what it pretends to be. The zero value
// listens on free ports of 127.0.0.1.
type Config struct {
	// GRPCListen, MachineAPIListen and LinkListen are host:port; port 0 takes a
	// free one, which the server then keeps over Stop and Start.
	GRPCListen       string
	MachineAPIListen string
	LinkListen       string
	// ControlListen is the loopback address of the control endpoint, empty for
	// none.
	ControlListen string

	// FactoryURL is the image factory in FeaturesConfig, and where schematics
	// are registered.
	FactoryURL string
	// Version is the server's own, with v; v1.9.3 when empty.
	Version string
	// TalosVersions are the versions that Omni offers, without v.
	TalosVersions []string
	// DataDir keeps resources and keys over restarts of the process. Empty
	// keeps them in memory.
	DataDir string

	// Endpoint, MachineAPIURL and LinkEndpoint override what is advertised,
	// for listeners whose own address nobody can dial.
	Endpoint      string
	MachineAPIURL string
	LinkEndpoint  string

	// TimeScale multiplies Omni's own delays: 1 is real time, 0.1 is ten times
	// faster. 0 means 1.
	TimeScale float64

	// Listen makes the listeners, by name and address; nil is TCP.
	Listen func(ctx context.Context, name, address string) (net.Listener, error)
	// FactoryDial dials the image factory; nil is TCP.
	FactoryDial func(ctx context.Context, network, address string) (net.Conn, error)

	// BeforeCall and AfterCall are called around each call of the Omni API,
	// outside of all locks: before the call did anything, and after it took
	// effect but before it is answered. The name is "<verb> <type> <id>". A
	// BeforeCall that ends its goroutine (runtime.Goexit) drops the call.
	BeforeCall func(number int, name string)
	AfterCall  func(number int, name string)

	// Log is nil for none.
	Log *zap.Logger
}

func (c Config) withDefaults() (Config, error) {
	for _, address := range []*string{&c.GRPCListen, &c.MachineAPIListen, &c.LinkListen} {
		if *address == "" {
			*address = defaultAddress
		}
	}

	if c.Version == "" {
		c.Version = defaultVersion
	}

	if len(c.TalosVersions) == 0 {
		c.TalosVersions = []string{"1.11.6", "1.12.2", "1.12.3", "1.12.7", "1.13.0", "1.13.5"}
	}

	if c.TimeScale == 0 {
		c.TimeScale = 1
	}

	if c.TimeScale < 0 {
		return c, errors.New("the time scale must be positive")
	}

	if c.Log == nil {
		c.Log = zap.NewNop()
	}

	if c.Listen == nil {
		c.Listen = func(ctx context.Context, _, address string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		}
	}

	if c.ControlListen != "" {
		host, _, err := net.SplitHostPort(c.ControlListen)
		if err != nil {
			return c, err
		}

		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return c, errors.New("the control endpoint must listen on loopback: whoever reaches it can make keys")
		}
	}

	return c, nil
}

func (c Config) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * c.TimeScale)
}
