package guest_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	pb "github.com/siderolabs/siderolink/api/siderolink"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/guest"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// volume writes a config disk with one file of a long name.
func volume(label, name string, data []byte) []byte {
	const fatSectors, rootEntries = 2, 16

	clusters := max((len(data)+511)/512, 1)
	total := 1 + fatSectors + rootEntries*32/512 + clusters
	d := make([]byte, total*512)
	le := binary.LittleEndian

	le.PutUint16(d[11:], 512)
	d[13], d[16] = 1, 1
	le.PutUint16(d[14:], 1)
	le.PutUint16(d[17:], rootEntries)
	le.PutUint16(d[19:], uint16(total))
	le.PutUint16(d[22:], fatSectors)
	d[510], d[511] = 0x55, 0xaa

	root := d[(1+fatSectors)*512:]
	copy(root, label+"           "[len(label):])
	root[11] = 0x08

	const short = "FILE~1     "

	var sum byte
	for _, c := range []byte(short) {
		sum = sum>>1 | sum<<7
		sum += c
	}

	long := root[32:64]
	long[0], long[11], long[13] = 0x41, 0x0f, sum

	for i, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		switch {
		case i < len(name):
			le.PutUint16(long[at:], uint16(name[i]))
		case i > len(name):
			le.PutUint16(long[at:], 0xffff)
		}
	}

	entry := root[64:96]
	copy(entry, short)
	le.PutUint16(entry[26:], 2)
	le.PutUint32(entry[28:], uint32(len(data)))
	copy(d[(1+fatSectors)*512+rootEntries*32:], data)

	for n := 2; n < clusters+2; n++ {
		next := n + 1
		if n == clusters+1 {
			next = 0xfff
		}

		at := 512 + n*3/2
		pair := le.Uint16(d[at:])

		if n%2 == 0 {
			pair = pair&0xf000 | uint16(next)
		} else {
			pair = pair&0x000f | uint16(next)<<4
		}

		le.PutUint16(d[at:], pair)
	}

	return d
}

func cidata(userData string) []byte { return volume("cidata", "user-data", []byte(userData)) }

// omni is the other side: it admits machines and talks to them.
type omni struct {
	pb.UnimplementedProvisionServiceServer

	t     *testing.T
	api   string
	links net.Listener

	mu       sync.Mutex
	requests []*pb.ProvisionRequest
	refuse   error
}

func newOmni(t *testing.T) *omni {
	t.Helper()

	var config net.ListenConfig

	api, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	links, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	o := &omni{t: t, api: api.Addr().String(), links: links}
	server := grpc.NewServer()
	pb.RegisterProvisionServiceServer(server, o)

	var serving sync.WaitGroup

	serving.Go(func() {
		if err := server.Serve(api); err != nil {
			t.Error(err)
		}
	})

	t.Cleanup(func() {
		server.Stop()
		links.Close()
		serving.Wait()
	})

	return o
}

// Provision implements pb.ProvisionServiceServer.
func (o *omni) Provision(_ context.Context, request *pb.ProvisionRequest) (*pb.ProvisionResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.requests = append(o.requests, request)

	if o.refuse != nil {
		return nil, o.refuse
	}

	return &pb.ProvisionResponse{ServerEndpoint: []string{o.links.Addr().String(), "192.0.2.1:1"}}, nil
}

func (o *omni) calls() []*pb.ProvisionRequest {
	o.mu.Lock()
	defer o.mu.Unlock()

	return append([]*pb.ProvisionRequest(nil), o.requests...)
}

func (o *omni) setRefusal(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.refuse = err
}

// joinConfig is the user-data that makes a machine join here.
func (o *omni) joinConfig() string {
	return "apiVersion: v1alpha1\nkind: SideroLinkConfig\napiUrl: grpc://" + o.api + "?jointoken=v2:secret%3D&grpc_tunnel=true\n---\n" +
		"apiVersion: v1alpha1\nkind: EventSinkConfig\nendpoint: '[fdae:41e4:649b:9303::1]:8091'\n"
}

// accept waits for a machine's link and its greeting.
func (o *omni) accept() (*link.Conn, link.Hello) {
	o.t.Helper()

	if tcp, ok := o.links.(*net.TCPListener); ok {
		if err := tcp.SetDeadline(time.Now().Add(patience)); err != nil {
			o.t.Fatal(err)
		}
	}

	tcp, err := o.links.Accept()
	if err != nil {
		o.t.Fatal(err)
	}

	if err := tcp.SetReadDeadline(time.Now().Add(patience)); err != nil {
		o.t.Fatal(err)
	}

	conn := link.NewConn(tcp)
	o.t.Cleanup(func() { conn.Close() })

	message, err := conn.Receive()
	if err != nil || message.Hello == nil {
		o.t.Fatal(message, err)
	}

	return conn, *message.Hello
}

// do sends a command and returns the error that answers it, and the events
// that came before the answer.
func (o *omni) do(conn *link.Conn, command link.Command) (string, []link.Event) {
	o.t.Helper()

	if err := conn.Send(link.Message{Command: &command}); err != nil {
		o.t.Fatal(err)
	}

	var events []link.Event

	for {
		message, err := conn.Receive()
		if err != nil {
			o.t.Fatal(err)
		}

		switch {
		case message.Event != nil:
			events = append(events, *message.Event)
		case message.Result != nil && message.Result.Number == command.Number:
			return message.Result.Error, events
		}
	}
}

func disk(t *testing.T, talos string, change func(*talosimage.Descriptor)) *talosimage.Image {
	t.Helper()

	d := talosimage.Descriptor{Talos: talos, Schematic: "5c4e", Arch: "amd64", Platform: "nocloud"}
	if change != nil {
		change(&d)
	}

	img, err := talosimage.New(d, 2<<20, talosimage.Content{})
	if err != nil {
		t.Fatal(err)
	}

	return img
}

func hardware(t *testing.T, talos, userData string) guest.Hardware {
	t.Helper()

	img := disk(t, talos, nil)

	return guest.Hardware{
		UUID: "74c39ec9-edb1-4af7-8000-000000000001", CIData: cidata(userData), BootDisk: img, BootDiskSize: img.Size() + 4096,
		Store: guest.NewStore(), Hostname: "node-a", Addresses: []string{"172.30.0.5"}, TimeScale: 0.01,
	}
}

// boot switches a guest on. The returned function cuts the power and returns
// how it ended.
func boot(t *testing.T, hw guest.Hardware) (cut func() guest.Exit, ended <-chan guest.Exit) {
	t.Helper()

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	exit := make(chan guest.Exit, 1)
	done := make(chan struct{})

	go func() {
		defer close(done)

		exit <- guest.Run(ctx, hw, zaptest.NewLogger(t))
	}()

	t.Cleanup(func() {
		cancel()
		<-done
	})

	return func() guest.Exit {
		cancel()

		return <-exit
	}, exit
}
