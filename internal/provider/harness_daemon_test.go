package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/siderolabs/omni/client/pkg/client"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/health"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// factorySchematic is the ID that the factory behind Omni gives every schematic.
const factorySchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

const (
	factoryHost = "factory.test"
	factoryName = "factory"
)

// serveFactoryRequest registers schematics, and has no images but those of a test.
func (b *bench) serveFactoryRequest(w http.ResponseWriter, r *http.Request) {
	if download := b.download.Load(); download != nil && strings.HasPrefix(r.URL.Path, "/image/") {
		(*download)(w, r)

		return
	}

	if r.Method != http.MethodPost || r.URL.Path != "/schematics" {
		http.NotFound(w, r)

		return
	}

	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"id":%q}`, factorySchematic)
}

// served is a daemon under test.
type served struct {
	*Daemon

	board  *health.Board
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// serve runs a whole daemon, with the real image manager, until the test ends.
// The image that requests want by default is in the rack.
func (b *bench) serve(change ...func(*Options)) *served {
	b.t.Helper()
	b.seed()

	images := talos.NewFactory(talos.FactoryConfig{HTTP: &http.Client{Transport: b.factory}})

	d := b.run(func(o *Options) {
		o.Factory = images

		for _, c := range change {
			c(o)
		}
	})

	b.t.Cleanup(func() {
		if err := d.stop(); err != nil && !errors.Is(err, errOwnerChanged) {
			b.t.Errorf("the daemon ended with %v", err)
		}

		images.Close()
	})

	return d
}

// seed makes the image that requests want by default, once.
func (b *bench) seed() {
	b.t.Helper()

	if b.seeded {
		return
	}

	b.seeded = true
	identity := naming.ImageIdentity{Schematic: factorySchematic, Talos: "1.13.5", Arch: architecture, FactoryHost: factoryHost}
	b.makeImage(naming.Image(identity), naming.Mark{
		Owner: naming.NewOwner(), Provider: "another", Kind: naming.KindImage, Key: identity.Key(), Run: "0123abcd", Image: identity.Mark(),
	}.Describe("Talos Linux"))
}

// run runs a whole daemon, which the caller ends.
func (b *bench) run(change ...func(*Options)) *served {
	b.t.Helper()

	board := health.NewBoard(b.logger, health.NeedRack, NeedOmni)

	opts := Options{
		ProviderID: testID, Name: "Oxide", Description: "test", Schema: "{}",
		Omni: Way{Endpoint: b.omni.Endpoint(), Options: []client.Option{b.omniDialer()}}, OmniKey: b.key,
		Rack: b.rack, FactoryURL: "http://" + factoryHost,
		Concurrency: 4, MaxCreates: 4, Settle: settle, ScratchGrace: 2 * time.Minute, JoinTime: 15 * time.Minute,
		Board: board, Logger: b.logger,
	}
	for _, c := range change {
		c(&opts)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	d := &served{Daemon: NewDaemon(opts), board: board, cancel: cancel, done: make(chan struct{})}

	go func() {
		defer close(d.done)

		d.err = d.Run(ctx)
	}()

	return d
}

// stop ends the daemon as SIGTERM does, and answers what Run did.
func (d *served) stop() error {
	d.cancel()
	<-d.done

	return d.err
}

// untilTrouble waits until the board says so.
func (b *bench) untilTrouble(d *served, want string) {
	b.t.Helper()

	b.until("trouble: "+want, func() bool {
		err := d.board.Err()

		return err != nil && strings.Contains(err.Error(), want)
	})

	if d.board.Ready() {
		b.t.Error("a daemon in trouble is ready")
	}
}

func (b *bench) untilReady(d *served) {
	b.t.Helper()

	b.until("the daemon to be ready", d.board.Ready)
}

// wantServing demands that the daemon lives, and makes a machine.
func (b *bench) wantServing(d *served, id string) {
	b.t.Helper()

	b.untilReady(d)
	b.ask(id)
	b.untilStage(id, stageProvisioned)

	select {
	case <-d.done:
		b.t.Fatalf("the daemon ended: %v", d.err)
	default:
	}
}

// notReady are the warnings of the board.
func (b *bench) notReady() []string {
	var out []string

	for _, e := range b.logs.All() {
		if strings.HasPrefix(e.Message, "not ready: ") {
			out = append(out, e.Message)
		}
	}

	return out
}

func (b *bench) serveFactory() {
	b.t.Helper()

	b.factory = b.net.serve(b.t, factoryName, http.HandlerFunc(b.serveFactoryRequest))
	b.t.Cleanup(b.factory.CloseIdleConnections)
}
