package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/plan"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/underlay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func planned(t *testing.T) (plan.Services, []netip.AddrPort) {
	t.Helper()

	d, err := plan.Default(3)
	if err != nil {
		t.Fatal(err)
	}

	sleds, err := plan.MakeSleds(d, uuid.NewString)
	if err != nil {
		t.Fatal(err)
	}

	reported := plan.Reported{}

	for _, s := range d.Sleds {
		for _, disk := range s.Disks {
			reported[s.Serial] = append(reported[s.Serial], disk.Serial)
		}
	}

	d.Services.Database = 9

	services, err := plan.MakeServices(d, sleds, reported, uuid.NewString)
	if err != nil {
		t.Fatal(err)
	}

	servers, err := plan.DNSAddresses(d)
	if err != nil {
		t.Fatal(err)
	}

	return services, servers
}

func serve(t *testing.T, u *underlay.Underlay, s store.Store, at netip.AddrPort, id string) *Server {
	t.Helper()

	conn, err := u.ListenPacket(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}

	d, err := Serve(conn, s, id)
	if err != nil {
		t.Fatal(err)
	}

	return d
}

// Every service and every dataset of a plan is found by name, over the wire.
func TestAllOfAPlanIsFoundByName(t *testing.T) {
	services, servers := planned(t)
	u := &underlay.Underlay{}
	r := &Resolver{Servers: servers, Dial: u.DialContext}

	for i, at := range r.Servers {
		d := serve(t, u, &store.Memory{}, at, fmt.Sprint(i))
		t.Cleanup(func() { d.Close() })

		if err := d.Set(Of(services)); err != nil {
			t.Fatal(err)
		}
	}

	where := map[string]netip.AddrPort{}
	kinds := map[string][]netip.AddrPort{}

	for _, s := range services.Services {
		where[s.Dataset] = s.Address
		kinds[string(s.Kind)] = append(kinds[string(s.Kind)], s.Address)
	}

	for _, s := range services.DNS {
		at := netip.AddrPortFrom(s.Address, plan.PortDNS)
		where[s.Dataset] = at
		kinds[string(s.Role)+"-dns"] = append(kinds[string(s.Role)+"-dns"], at)
	}

	for kind, want := range kinds {
		if got, err := r.Lookup(t.Context(), kind); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v; want %v", kind, got, err, want)
		}
	}

	for _, d := range services.Datasets {
		want, held := where[d.ID]
		if !held {
			want = d.Address
		}

		if got, err := r.LookupDataset(t.Context(), d.Kind, d.ID); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("dataset %s of kind %s: %v, %v; want %s", d.ID, d.Kind, got, err, want)
		}
	}

	if got, err := r.Lookup(t.Context(), "printer"); err == nil || !strings.Contains(err.Error(), "no such name") {
		t.Errorf("a service that is not there: %v, %v", got, err)
	}
}

// A foreign client of DNS is served as well.
func TestTheSystemsResolverReadsTheServer(t *testing.T) {
	services, servers := planned(t)
	u := &underlay.Underlay{}
	at := servers[0]

	d := serve(t, u, &store.Memory{}, at, "one")
	defer d.Close()

	if err := d.Set(Of(services)); err != nil {
		t.Fatal(err)
	}

	foreign := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return u.DialContext(ctx, "udp", at.String())
	}}

	_, found, err := foreign.LookupSRV(t.Context(), "pantry", "tcp", Zone+".")
	if err != nil || len(found) != 3 || !strings.HasSuffix(found[0].Target, ".host."+Zone+".") {
		t.Errorf("%v, %v", found, err)
	}
}

// A server that is gone is passed over; with none the look-up says so. Records
// are kept over a restart, and are empty until they are set.
func TestServersThatComeAndGo(t *testing.T) {
	services, servers := planned(t)
	u, kept := &underlay.Underlay{}, &store.Memory{}
	r := &Resolver{Servers: servers, Dial: u.DialContext}

	if _, err := r.Lookup(t.Context(), "database"); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("without a server: %v", err)
	}

	d := serve(t, u, kept, r.Servers[2], "one")

	if _, err := r.Lookup(t.Context(), "database"); err == nil {
		t.Error("found before it was entered")
	}

	if err := d.Set(Of(services)); err != nil {
		t.Fatal(err)
	}

	d.Close()

	d = serve(t, u, kept, r.Servers[2], "one")
	defer d.Close()

	if got, err := r.Lookup(t.Context(), "database"); err != nil || len(got) != 9 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRecordsThatCanNotBeRead(t *testing.T) {
	kept := &store.Memory{}
	if err := kept.Save("dns.one", []byte("{")); err != nil {
		t.Fatal(err)
	}

	u := &underlay.Underlay{}

	conn, err := u.ListenPacket(t.Context(), netip.MustParseAddrPort("[fd00::1]:53"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if _, err := Serve(conn, kept, "one"); err == nil || !strings.Contains(err.Error(), "can not be used") {
		t.Errorf("%v", err)
	}
}

func TestAnswersToOddQuestions(t *testing.T) {
	services, _ := planned(t)
	records := Of(services)

	ask := func(change func(*dnsmessage.Message)) dnsmessage.Message {
		t.Helper()

		m := dnsmessage.Message{Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName("_database._tcp." + Zone + "."), Type: dnsmessage.TypeSRV, Class: dnsmessage.ClassINET,
		}}}
		change(&m)

		raw, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}

		var out dnsmessage.Message
		if err := out.Unpack(records.answer(raw)); err != nil {
			t.Fatal(err)
		}

		return out
	}

	if m := ask(func(*dnsmessage.Message) {}); !m.Truncated || len(m.Answers) != 0 {
		t.Errorf("nine services in a plain datagram: %+v", m.Header)
	}

	for want, change := range map[dnsmessage.RCode]func(*dnsmessage.Message){
		dnsmessage.RCodeRefused:        func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("example.com.") },
		dnsmessage.RCodeNotImplemented: func(m *dnsmessage.Message) { m.OpCode = 4 },
		dnsmessage.RCodeFormatError:    func(m *dnsmessage.Message) { m.Questions = nil },
		dnsmessage.RCodeNameError:      func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("x." + Zone + ".") },
		dnsmessage.RCodeSuccess:        func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeA },
	} {
		if m := ask(change); m.RCode != want || len(m.Answers) != 0 {
			t.Errorf("%s: %+v", want, m)
		}
	}

	for _, raw := range [][]byte{nil, {1, 2, 3}} {
		if got := records.answer(raw); got != nil {
			t.Errorf("%x was answered: %x", raw, got)
		}
	}
}
