package link_test

import (
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMessagesArriveWholeAndInOrder(t *testing.T) {
	t.Parallel()

	a, b := net.Pipe()
	guest, omni := link.NewConn(a), link.NewConn(b)

	// Larger than one read, and with line breaks in it.
	config := strings.Repeat("machine:\n  kubelet: {}\n", 20000)
	sent := make(chan error, 1)

	go func() {
		for _, m := range []link.Message{
			{Hello: &link.Hello{UUID: "u", Platform: "nocloud", Stage: link.StageMaintenance}},
			{Command: &link.Command{Number: 1, Verb: link.VerbApplyConfig, Config: config}},
			{Result: &link.Result{Number: 1, Error: "refused"}},
		} {
			if err := guest.Send(m); err != nil {
				sent <- err

				return
			}
		}

		sent <- guest.Close()
	}()

	hello, err := omni.Receive()
	if err != nil || hello.Hello == nil || hello.Hello.Platform != "nocloud" {
		t.Fatalf("got %+v, %v", hello, err)
	}

	command, err := omni.Receive()
	if err != nil || command.Command == nil || command.Command.Config != config {
		t.Fatalf("the config has not arrived whole: %v", err)
	}

	result, err := omni.Receive()
	if err != nil || result.Result == nil || result.Result.Error != "refused" {
		t.Fatalf("got %+v, %v", result, err)
	}

	if _, err := omni.Receive(); err == nil {
		t.Error("a closed link gives messages")
	}

	if err := <-sent; err != nil {
		t.Error(err)
	}

	if err := omni.Close(); err != nil {
		t.Error(err)
	}
}

func TestGarbageIsAnError(t *testing.T) {
	t.Parallel()

	a, b := net.Pipe()
	conn := link.NewConn(b)
	written := make(chan error, 1)

	go func() {
		_, err := a.Write([]byte("no json\n"))
		written <- err
	}()

	if _, err := conn.Receive(); err == nil || !strings.Contains(err.Error(), "decoding") {
		t.Errorf("got %v", err)
	}

	if err := <-written; err != nil {
		t.Error(err)
	}

	_, _ = a.Close(), conn.Close()
}
