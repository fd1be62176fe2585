package edge

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Proxy makes connections for who asks with CONNECT. It knows only the names that
// it was told.
type Proxy struct {
	*Door

	mu      sync.Mutex
	names   map[string]string // HOST:PORT to the address behind it
	status  int
	asked   map[string]int
	headers []http.Header
}

// OpenProxy makes one. names leads each HOST:PORT to an address.
func OpenProxy(ctx context.Context, names map[string]string) (*Proxy, error) {
	p := &Proxy{names: names, status: http.StatusOK, asked: map[string]int{}}

	var err error

	p.Door, err = open(ctx, func(l net.Listener) net.Listener { return l }, p.serve)

	return p, err
}

// Answer makes it answer the status to all from now on.
func (p *Proxy) Answer(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.status = status
}

// Asked is how often each HOST:PORT was asked for.
func (p *Proxy) Asked() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()

	out := map[string]int{}
	for k, v := range p.asked {
		out[k] = v
	}

	return out
}

// Headers are those that it was asked with.
func (p *Proxy) Headers() []http.Header {
	p.mu.Lock()
	defer p.mu.Unlock()

	return append([]http.Header{}, p.headers...)
}

func (p *Proxy) serve(ctx context.Context, d *Door, c net.Conn) {
	in := bufio.NewReader(c)

	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}

	p.mu.Lock()
	p.asked[req.Host]++
	p.headers = append(p.headers, req.Header)
	status, target := p.status, p.names[req.Host]
	p.mu.Unlock()

	switch {
	case req.Method != http.MethodConnect:
		status = http.StatusMethodNotAllowed
	case status == http.StatusOK && target == "":
		status = http.StatusBadGateway
	}

	if status != http.StatusOK {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status, http.StatusText(status))

		return
	}

	_, _ = fmt.Fprint(c, "HTTP/1.1 200 Connection established\r\n\r\n")

	d.join(ctx, in, c, target)
}
