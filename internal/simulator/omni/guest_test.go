package omni_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/google/uuid"
	pb "github.com/siderolabs/siderolink/api/siderolink"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

// guest is a machine as Omni sees it: it joins, takes a config, and is reset.
type guest struct {
	uuid     string
	platform string
	join     string
	cancel   context.CancelFunc
	done     chan struct{}

	mu      sync.Mutex
	stage   link.Stage
	configs []string
	halted  bool
	err     error
}

// bootGuest starts a guest with a join config.
func bootGuest(t *testing.T, joinConfig, platform string) *guest {
	t.Helper()

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g := &guest{uuid: uuid.NewString(), platform: platform, join: joinConfig, cancel: cancel, done: make(chan struct{}), stage: link.StageMaintenance}

	go func() {
		defer close(g.done)

		for ctx.Err() == nil && !g.isHalted() {
			err := g.live(ctx)

			g.mu.Lock()
			g.err = err
			g.mu.Unlock()

			if err != nil && ctx.Err() == nil {
				// A guest tries for ever; the pause is the kernel's.
				continue
			}
		}
	}()

	t.Cleanup(g.powerOff)

	return g
}

func (g *guest) powerOff() {
	g.cancel()
	<-g.done
}

func (g *guest) isHalted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.halted
}

func (g *guest) lastConfig() string {
	g.mu.Lock()
	defer g.mu.Unlock()

	if len(g.configs) == 0 {
		return ""
	}

	return g.configs[len(g.configs)-1]
}

// live joins once and serves the link until it breaks.
func (g *guest) live(ctx context.Context) error {
	endpoint, key, err := admit(ctx, g.join, g.uuid)
	if err != nil {
		return err
	}

	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return err
	}

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	lc := link.NewConn(conn)
	defer lc.Close()

	g.mu.Lock()
	hello := link.Hello{UUID: g.uuid, NodePublicKey: key, TalosVersion: "1.13.5", Arch: "amd64", Platform: g.platform, Stage: g.stage}
	g.mu.Unlock()

	if err := lc.Send(link.Message{Hello: &hello}); err != nil {
		return err
	}

	for {
		message, err := lc.Receive()
		if err != nil {
			return err
		}

		if message.Command == nil {
			continue
		}

		if rebooted := g.obey(lc, *message.Command); rebooted {
			return nil
		}
	}
}

// obey carries a command out and says whether the guest went down.
func (g *guest) obey(lc *link.Conn, command link.Command) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if command.Verb == link.VerbReset {
		_ = lc.Send(link.Message{Event: &link.Event{Stage: link.StageResetting}})
	}

	_ = lc.Send(link.Message{Result: &link.Result{Number: command.Number}})

	switch command.Verb {
	case link.VerbApplyConfig:
		g.configs = append(g.configs, command.Config)
		g.stage = link.StageRunning
		_ = lc.Send(link.Message{Event: &link.Event{Stage: g.stage, Hostname: "node-" + g.uuid[:8]}})
	case link.VerbReset:
		g.stage = link.StageMaintenance
		g.halted = !command.Reboot

		return true
	case link.VerbPing:
	}

	return false
}

// admit makes SideroLink's call with what a join config says, and returns
// where to dial and the key that was admitted.
func admit(ctx context.Context, joinConfig, uuid string) (endpoint, key string, err error) {
	config, err := configloader.NewFromBytes([]byte(joinConfig))
	if err != nil {
		return "", "", err
	}

	url := config.SideroLink().APIUrl()

	return admitWith(ctx, url.Host, url.Query().Get("jointoken"), uuid)
}

func admitWith(ctx context.Context, host, token, uuid string) (endpoint, key string, err error) {
	conn, err := grpc.NewClient(host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", "", err
	}
	defer conn.Close()

	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", "", err
	}

	key = base64.StdEncoding.EncodeToString(raw)
	version := "v1.13.5"

	response, err := pb.NewProvisionServiceClient(conn).Provision(ctx, &pb.ProvisionRequest{
		NodeUuid: uuid, NodePublicKey: key, JoinToken: &token, TalosVersion: &version,
	})
	if err != nil {
		return "", "", err
	}

	if len(response.GetServerEndpoint()) == 0 {
		return "", "", errors.New("no endpoint")
	}

	return response.GetServerEndpoint()[0], key, nil
}
