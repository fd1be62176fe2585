package omni

import (
	"net"
	"sync"
)

// connections are the open connections of the API's clients.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// DropConnections closes the connections of all API clients without a word, as
// a network that breaks does. Calls in flight lose their answers.
func (s *Server) DropConnections() {
	s.mu.Lock()
	active := s.active
	s.mu.Unlock()

	if active == nil {
		return
	}

	active.connections.mu.Lock()
	defer active.connections.mu.Unlock()

	for conn := range active.connections.open {
		_ = conn.Close()
	}
}

// countedListener keeps track of the connections that it accepted.
type countedListener struct {
	net.Listener

	connections *connections
}

// Accept implements net.Listener.
func (l *countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	counted := &countedConn{Conn: conn, connections: l.connections}

	l.connections.mu.Lock()
	defer l.connections.mu.Unlock()

	l.connections.open[counted.Conn] = struct{}{}

	return counted, nil
}

type countedConn struct {
	net.Conn

	connections *connections
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.connections.mu.Lock()
	delete(c.connections.open, c.Conn)
	c.connections.mu.Unlock()

	return c.Conn.Close()
}
