package dns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// askWithin bounds one question to one server. It is real time: the servers are
// in this process.
const askWithin = 2 * time.Second

// Resolver finds services by name. All it needs to know are the addresses of
// the DNS servers.
type Resolver struct {
	Servers []netip.AddrPort
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// Lookup finds all services of a kind, at least one.
func (r *Resolver) Lookup(ctx context.Context, kind string) ([]netip.AddrPort, error) {
	return r.lookup(ctx, srvName(kind, ""))
}

// LookupDataset finds where a dataset is served.
func (r *Resolver) LookupDataset(ctx context.Context, kind, id string) ([]netip.AddrPort, error) {
	return r.lookup(ctx, srvName(kind, id))
}

func (r *Resolver) lookup(ctx context.Context, name string) ([]netip.AddrPort, error) {
	found, err := r.ask(ctx, name+"."+Zone+".", dnsmessage.TypeSRV)
	if err != nil {
		return nil, err
	}

	var out []netip.AddrPort

	for _, body := range found {
		srv, ok := body.(*dnsmessage.SRVResource)
		if !ok {
			continue
		}

		hosts, err := r.ask(ctx, srv.Target.String(), dnsmessage.TypeAAAA)
		if err != nil {
			return nil, err
		}

		for _, h := range hosts {
			if a, ok := h.(*dnsmessage.AAAAResource); ok {
				out = append(out, netip.AddrPortFrom(netip.AddrFrom16(a.AAAA), srv.Port))
			}
		}
	}

	if len(out) == 0 {
		return nil, fmt.Errorf("looking up %s: no service is entered there", name)
	}

	return out, nil
}

// ask asks one server after the other until one answers.
func (r *Resolver) ask(ctx context.Context, name string, kind dnsmessage.Type) ([]dnsmessage.ResourceBody, error) {
	err := errors.New("there are no DNS servers")

	for _, i := range rand.Perm(len(r.Servers)) {
		var out []dnsmessage.ResourceBody

		if out, err = r.askOne(ctx, r.Servers[i], name, kind); err == nil {
			return out, nil
		}
	}

	return nil, fmt.Errorf("looking up %s: %w", name, err)
}

func (r *Resolver) askOne(ctx context.Context, server netip.AddrPort, name string, kind dnsmessage.Type) ([]dnsmessage.ResourceBody, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()

	id := uint16(rand.Uint32())

	query, err := question(id, name, kind)
	if err != nil {
		return nil, err
	}

	conn, err := r.Dial(ctx, "udp", server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost

	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	if _, err := conn.Write(query); err != nil {
		return nil, fmt.Errorf("asking %s: %w", server, err)
	}

	raw := make([]byte, largestSize)

	for {
		n, err := conn.Read(raw)
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w", server, err)
		}

		var m dnsmessage.Message

		// What is not the answer to this question is not for us.
		if m.Unpack(raw[:n]) == nil && m.Response && m.ID == id {
			return bodies(m)
		}
	}
}

func question(id uint16, name string, kind dnsmessage.Type) ([]byte, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", name, err)
	}

	var size dnsmessage.ResourceHeader
	if err := size.SetEDNS0(largestSize, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}

	m := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: id},
		Questions:   []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{{Header: size, Body: &dnsmessage.OPTResource{}}},
	}

	return m.Pack()
}

func bodies(m dnsmessage.Message) ([]dnsmessage.ResourceBody, error) {
	switch {
	case m.RCode == dnsmessage.RCodeNameError:
		return nil, errors.New("there is no such name")
	case m.RCode != dnsmessage.RCodeSuccess:
		return nil, fmt.Errorf("the server answers %s", m.RCode)
	case m.Truncated:
		return nil, errors.New("the answer is longer than a datagram")
	}

	var out []dnsmessage.ResourceBody
	for _, a := range m.Answers {
		out = append(out, a.Body)
	}

	return out, nil
}
