package dns

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

// Server is one DNS server. It keeps its records, and answers from them again
// after a restart.
type Server struct {
	name  string
	store store.Store
	conn  net.PacketConn
	done  sync.WaitGroup

	mu      sync.RWMutex
	records Records
}

// Serve starts a server on a socket, with the records that it has kept under
// its ID. Close ends it.
func Serve(conn net.PacketConn, s store.Store, id string) (*Server, error) {
	d := &Server{name: "dns." + id, store: s, conn: conn}

	raw, found, err := s.Load(d.name)
	if err != nil {
		return nil, err
	}

	if found {
		if err := json.Unmarshal(raw, &d.records); err != nil {
			return nil, store.Unusable(s, d.name, fmt.Errorf("the records of a DNS server: %w", err))
		}
	}

	d.done.Go(d.serve)

	return d, nil
}

// Set replaces all records. They are kept before they are answered.
func (d *Server) Set(r Records) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if reflect.DeepEqual(d.records, r) {
		return nil
	}

	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding DNS records: %w", err)
	}

	if err := d.store.Save(d.name, raw); err != nil {
		return err
	}

	d.records = r

	return nil
}

// Close ends the server and waits for it.
func (d *Server) Close() error {
	err := d.conn.Close()
	d.done.Wait()

	return err
}

func (d *Server) serve() {
	query := make([]byte, largestSize)

	for {
		n, from, err := d.conn.ReadFrom(query)
		if errors.Is(err, net.ErrClosed) {
			return
		}

		if err != nil {
			continue // of one datagram: the next is another's
		}

		d.mu.RLock()
		answer := d.records.answer(query[:n])
		d.mu.RUnlock()

		if answer != nil {
			// A client that is not answered asks again.
			_, _ = d.conn.WriteTo(answer, from)
		}
	}
}
