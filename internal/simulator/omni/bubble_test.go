package omni_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/omni/client/pkg/client"
	"github.com/siderolabs/omni/client/pkg/infra"
	infrares "github.com/siderolabs/omni/client/pkg/omni/resources/infra"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	simulator "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/omni"
)

// memory is a network of in-memory listeners, by their names.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

func (m *memory) listen(_ context.Context, name, _ string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.listeners[name] = bufconn.Listen(1 << 20)

	return m.listeners[name], nil
}

func (m *memory) dial(ctx context.Context, name string) (net.Conn, error) {
	m.mu.Lock()
	listener := m.listeners[name]
	m.mu.Unlock()

	return listener.DialContext(ctx)
}

// With in-memory listeners time can be fake: a stream that breaks after the
// SDK's fifteen minutes ends Run, which is seen here in no time.
func TestOldStreamsThatAreCutEndRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &memory{listeners: map[string]*bufconn.Listener{}}

		server, err := simulator.New(simulator.Config{
			Listen: network.listen, Endpoint: "grpc://127.0.0.1:1", MachineAPIURL: "grpc://127.0.0.1:2", LinkEndpoint: "127.0.0.1:3",
		})
		check(t, err)
		check(t, server.Start(t.Context()))

		key, err := server.MintProviderKey(t.Context(), toyID, time.Hour)
		check(t, err)

		provider, err := infra.NewProvider(toyID, newToy(t), infra.ProviderConfig{Name: "Toy"})
		check(t, err)

		result := make(chan error, 1)

		go func() {
			result <- provider.Run(t.Context(), zap.NewNop(), infra.WithOmniEndpoint(server.Endpoint()),
				infra.WithClientOptions(client.WithServiceAccount(key), client.WithGrpcOpts(
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
						return network.dial(ctx, simulator.ListenerGRPC)
					}))))
		}()

		synctest.Wait()

		if got := list[*infrares.ProviderStatus](t, server.AdminState()); len(got) != 1 {
			t.Errorf("%d provider statuses", len(got))
		}

		<-time.After(16 * time.Minute)
		synctest.Wait()

		select {
		case err := <-result:
			t.Fatalf("Run ended before its streams broke: %v", err)
		default:
		}

		server.CutStreams()

		if err := <-result; err == nil || !strings.Contains(err.Error(), "maximum retry attempts") {
			t.Errorf("Run ended with %v", err)
		}

		check(t, server.Close())
	})
}
