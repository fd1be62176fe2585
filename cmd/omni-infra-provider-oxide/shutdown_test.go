package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// terminator ends a daemon with SIGTERM at its nth call of an operation.
type terminator struct {
	operation string
	nth       int32
	seen      atomic.Int32
	victim    atomic.Pointer[daemon]
	// seq is the number of the call.
	seq  atomic.Int32
	sent chan struct{}
}

func (k *terminator) before(seq int, op string) {
	d := k.victim.Load()
	if d == nil || op != k.operation || k.seen.Add(1) != k.nth {
		return
	}

	k.seq.Store(int32(seq))

	_ = d.cmd.Process.Signal(syscall.SIGTERM)

	// The daemon is ending when its call is answered.
	time.Sleep(300 * time.Millisecond)
	close(k.sent)
}

// Rule: SIGTERM at any point of an upload and of a create lets the call in flight
// end, is followed by 0 within the grace, and leaves nothing that the next process
// does not end; the lease is free at once.
func TestSIGTERMAtAnyPointIsHarmless(t *testing.T) {
	t.Parallel()

	for _, at := range []struct {
		operation string
		nth       int32
	}{
		{"disk_create", 1}, {"disk_bulk_write_import_start", 1}, {"disk_bulk_write_import", 1}, {"disk_bulk_write_import", 9},
		{"disk_bulk_write_import_stop", 1}, {"disk_finalize_import", 1}, {"image_create", 1}, {"image_promote", 1},
		{"instance_create", 1}, {"instance_create", 2}, {"instance_start", 1}, {"instance_view", 1},
	} {
		t.Run(fmt.Sprintf("%s %d", at.operation, at.nth), func(t *testing.T) {
			t.Parallel()

			k := &terminator{operation: at.operation, nth: at.nth, sent: make(chan struct{})}
			p := newPlace(t, site.Config{Rack: rack.Config{BeforeCall: k.before}})
			env := p.env("oxide")
			env["SHUTDOWN_GRACE"] = "10s"
			d := start(t, env)

			p.waitRegistered("oxide")
			k.victim.Store(d)
			p.set("workers", "oxide", 2)

			<-k.sent

			began := time.Now()
			if code := d.wait(); code != 0 {
				t.Fatalf("exit code %d", code)
			}

			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}

			if !strings.Contains(d.log(), "freed the lease") || strings.Contains(d.log(), "grace for the end is over") {
				t.Error("it did not end in good order")
			}

			c, ok := p.Rack.Call(int(k.seq.Load()))
			if !ok || !c.Done {
				t.Errorf("the call in flight was %+v", c)
			}

			k.victim.Store(nil)

			next := start(t, env)
			p.waitJoined("workers", 2)
			p.set("workers", "oxide", 0)
			p.waitNothingLeft()

			if code := next.stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// Rule: an end that the rack does not let come is cut off by the grace, with 0; a
// second signal ends at once, with another code.
func TestAnEndThatHangsIsCutOff(t *testing.T) {
	t.Parallel()

	for name, second := range map[string]bool{"by the grace": false, "by a second signal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := newPlace(t, site.Config{})
			env := p.env("oxide")
			env["SHUTDOWN_GRACE"] = "4s"
			d := start(t, env)
			p.waitRegistered("oxide")

			if _, err := p.Rack.AddFault(rack.Fault{Operation: "instance_create", Action: rack.ActionDelay, Delay: rack.Duration(10 * time.Minute)}); err != nil {
				t.Fatal(err)
			}

			p.set("workers", "oxide", 1)
			p.eventually("a create to hang", func() bool { return p.Rack.CallCount("instance_create") > 0 })

			began := time.Now()

			if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}

			if second {
				p.eventually("the first signal to be seen", func() bool { return strings.Contains(d.log(), `"ending"`) })

				if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}

			code := d.wait()
			took := time.Since(began)

			if second && (code != 1 || took > 2*time.Second) || !second && (code != 0 || took > 5*time.Second || took < 2*time.Second) {
				t.Errorf("exit code %d after %s", code, took)
			}
		})
	}
}
