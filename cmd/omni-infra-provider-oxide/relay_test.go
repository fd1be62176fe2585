package main

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay stands between one daemon and a server, so that one replica can be cut
// off while the others are not.
type relay struct {
	address, target string

	mu    sync.Mutex
	open  chan struct{} // closed while bytes pass
	conns map[net.Conn]struct{}
	ended chan struct{}
	work  sync.WaitGroup
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r := &relay{
		address: l.Addr().String(), target: target,
		open: make(chan struct{}), conns: map[net.Conn]struct{}{}, ended: make(chan struct{}),
	}
	close(r.open)

	r.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			r.work.Go(func() { r.serve(c) })
		}
	})

	t.Cleanup(func() {
		close(r.ended)
		_ = l.Close()

		r.mu.Lock()
		for c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()

		r.work.Wait()
	})

	return r
}

func (r *relay) hold(c net.Conn) func() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.conns[c] = struct{}{}

	select {
	case <-r.ended:
		_ = c.Close()
	default:
	}

	return func() {
		_ = c.Close()

		r.mu.Lock()
		defer r.mu.Unlock()

		delete(r.conns, c)
	}
}

func (r *relay) serve(client net.Conn) {
	defer r.hold(client)()

	if !r.passes() {
		return
	}

	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}

	defer r.hold(server)()

	var both sync.WaitGroup

	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			r.copy(way[1], way[0])

			_ = client.Close()
			_ = server.Close()
		})
	}

	both.Wait()
}

func (r *relay) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)

	for {
		n, err := from.Read(buf)
		if n == 0 && err != nil || !r.passes() {
			return
		}

		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// passes waits until bytes pass, and answers false at the end of the relay.
func (r *relay) passes() bool {
	r.mu.Lock()
	open := r.open
	r.mu.Unlock()

	select {
	case <-open:
		return true
	case <-r.ended:
		return false
	}
}

// cut lets nothing through, and says nothing of it: neither side gets an answer.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.open = make(chan struct{})
}

func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()

	close(r.open)
}
