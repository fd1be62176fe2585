package rack

import (
	"net/http"
	"sync"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/reach"
)

// lanes sends each request over a connection that no other request wants: as
// many connections as requests are open at once, kept for the next ones.
//
// One HTTP/2 connection would have one window for all writers. And one
// transport for many HTTP/1.1 connections dials whenever none is idle at that
// instant, though one may be a moment later, and so keeps half as many again.
type lanes struct {
	base *http.Transport

	mu   sync.Mutex
	free []*http.Transport
	all  []*http.Transport
}

func newLanes(base *http.Transport) *lanes {
	t := base.Clone()
	t.MaxConnsPerHost, t.MaxIdleConnsPerHost = 1, 1
	reach.HTTP1(t)
	pouring(t)

	return &lanes{base: t}
}

// RoundTrip implements http.RoundTripper.
func (l *lanes) RoundTrip(req *http.Request) (*http.Response, error) {
	t := l.take()
	defer l.give(t)

	return t.RoundTrip(req)
}

// take answers the lane that was used last: the others' connections may then
// be closed for idleness.
func (l *lanes) take() *http.Transport {
	l.mu.Lock()
	defer l.mu.Unlock()

	if n := len(l.free); n > 0 {
		t := l.free[n-1]
		l.free = l.free[:n-1]

		return t
	}

	t := l.base.Clone()
	l.all = append(l.all, t)

	return t
}

// give takes a lane back. Its last answer may still be read: the next request
// waits for that.
func (l *lanes) give(t *http.Transport) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.free = append(l.free, t)
}

// CloseIdleConnections drops the connections that no request uses.
func (l *lanes) CloseIdleConnections() {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, t := range l.all {
		t.CloseIdleConnections()
	}
}
