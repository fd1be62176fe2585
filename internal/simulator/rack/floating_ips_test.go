package rack

import (
	"fmt"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
)

func (r *rig) createFloating(name string, from oxide.AddressAllocator) (*oxide.FloatingIp, error) {
	return r.client.FloatingIpCreate(r.t.Context(), oxide.FloatingIpCreateParams{Project: demo, Body: &oxide.FloatingIpCreate{
		Name: oxide.Name(name), Description: "an address", AddressAllocator: from,
	}})
}

func (r *rig) floatingIP(name string) *oxide.FloatingIp {
	r.t.Helper()

	return must(r.createFloating(name, oxide.AddressAllocator{}))(r.t)
}

func explicitly(ip string) oxide.AddressAllocator {
	return oxide.AddressAllocator{Value: &oxide.AddressAllocatorExplicit{Ip: ip}}
}

func (r *rig) attachIP(f, instance string) (*oxide.FloatingIp, error) {
	return r.client.FloatingIpAttach(r.t.Context(), oxide.FloatingIpAttachParams{
		FloatingIp: oxide.NameOrId(f), Body: &oxide.FloatingIpAttach{Kind: oxide.FloatingIpParentKindInstance, Parent: oxide.NameOrId(instance)},
	})
}

func (r *rig) detachIP(f string) error {
	_, err := r.client.FloatingIpDetach(r.t.Context(), oxide.FloatingIpDetachParams{FloatingIp: oxide.NameOrId(f)})

	return err
}

func (r *rig) deleteIP(f string) error {
	return r.client.FloatingIpDelete(r.t.Context(), oxide.FloatingIpDeleteParams{FloatingIp: oxide.NameOrId(f)})
}

func (r *rig) ipKinds(instance string) string {
	r.t.Helper()

	var kinds []oxide.ExternalIpKind
	for _, ip := range must(r.client.InstanceExternalIpList(r.t.Context(), oxide.InstanceExternalIpListParams{Instance: oxide.NameOrId(instance)}))(r.t).Items {
		kinds = append(kinds, ip.Kind())
	}

	return fmt.Sprint(kinds)
}

func fromPool(first string, size int) func(*Config) {
	return func(c *Config) {
		c.Pools = []Pool{{Name: "pool", IPVersion: "v4", Default: true, First: first, Size: size}}
	}
}

func TestFloatingIPsComeOutOfThePool(t *testing.T) {
	r := newRig(t, fromPool("192.0.2.1", 3))
	ctx := t.Context()

	b := must(r.createFloating("b", explicitly("192.0.2.2")))(t)
	a := r.floatingIP("a")

	if a.Ip != "192.0.2.1" || b.Ip != "192.0.2.2" || a.IpPoolId != b.IpPoolId || a.InstanceId != "" {
		t.Errorf("addresses are %+v and %+v", a, b)
	}

	_, err := r.createFloating("c", explicitly("192.0.2.2"))
	wantError(t, err, 400, "InvalidRequest", "not available")

	_, err = r.createFloating("c", explicitly("198.51.100.1"))
	wantError(t, err, 400, "InvalidRequest", "in no pool")

	_, err = r.createFloating("a", oxide.AddressAllocator{})
	wantError(t, err, 400, "ObjectAlreadyExists", `floating-ip "a"`)

	c := r.floatingIP("c") // what the refused create had taken is free again
	_, err = r.createFloating("d", oxide.AddressAllocator{})
	wantError(t, err, 507, "InsufficientCapacity", "No external IP addresses available")

	must(0, r.deleteIP(c.Id))(t)
	wantError(t, r.deleteIP(c.Id), 404, "ObjectNotFound", "floating-ip with id")
	r.floatingIP("d")

	renamed := must(r.client.FloatingIpUpdate(ctx, oxide.FloatingIpUpdateParams{Project: demo, FloatingIp: "a", Body: &oxide.FloatingIpUpdate{Name: "z"}}))(t)
	if renamed.Id != a.Id || renamed.Description != a.Description {
		t.Errorf("renamed address is %+v", renamed)
	}

	all := must(r.client.FloatingIpListAllPages(ctx, oxide.FloatingIpListParams{Project: demo}))(t)
	if len(all) != 3 || all[2].Name != "z" {
		t.Errorf("addresses are %+v", all)
	}
}

// Invariant: an address is on one instance at most, and attach and detach of
// the same pair can be repeated without harm.
func TestFloatingIPsAreAttached(t *testing.T) {
	r := newRig(t, onlyVMs)
	i, j := r.instance("i"), r.instance("j")
	f := r.floatingIP("f")

	for _, parent := range []string{i.Id, i.Id, "i"} {
		if got := must(r.attachIP(f.Id, parent))(t); got.InstanceId != i.Id {
			t.Errorf("address is %+v", got)
		}
	}

	if got := r.ipKinds(i.Id); got != "[snat floating]" {
		t.Errorf("the instance has %s", got)
	}

	_, err := r.attachIP(f.Id, j.Id)
	wantError(t, err, 400, "InvalidRequest", "already attached to another instance")
	wantError(t, r.deleteIP(f.Id), 400, "InvalidRequest", "while attached")

	_, err = r.createInstance("k", func(b *oxide.InstanceCreate) {
		b.ExternalIps = []oxide.ExternalIpCreate{{Value: &oxide.ExternalIpCreateFloating{FloatingIp: "f"}}}
	})
	wantError(t, err, 400, "InvalidRequest", "already attached to another instance")

	must(0, r.detachIP(f.Id))(t)
	wantError(t, r.detachIP(f.Id), 400, "InvalidRequest", "not attached")
	must(r.attachIP(f.Id, j.Id))(t)

	// An instance that goes leaves it behind, as does a create that fails.
	must(0, r.deleteInstance(j.Id))(t)

	_, err = r.createInstance("k", func(b *oxide.InstanceCreate) {
		b.ExternalIps = []oxide.ExternalIpCreate{{Value: &oxide.ExternalIpCreateFloating{FloatingIp: oxide.NameOrId(f.Id)}}}
		b.Disks = []oxide.InstanceDiskAttachment{existing("none")}
	})
	wantError(t, err, 404, "ObjectNotFound", "disk")

	k := r.instance("k", func(b *oxide.InstanceCreate) {
		b.ExternalIps = []oxide.ExternalIpCreate{{Value: &oxide.ExternalIpCreateFloating{FloatingIp: oxide.NameOrId(f.Id)}}}
	})
	if got := r.ipKinds(k.Id); got != "[snat floating]" {
		t.Errorf("the instance has %s", got)
	}
}

// An instance on its way from one state to another is not given an address: 503
// says to ask again.
func TestAddressesWaitForTheInstance(t *testing.T) {
	r, step := newStepped(t, onlyVMs)
	i := r.instance("i")
	f := r.floatingIP("f")

	ephemeral := func() error {
		_, err := r.client.InstanceEphemeralIpAttach(t.Context(), oxide.InstanceEphemeralIpAttachParams{
			Instance: oxide.NameOrId(i.Id), Body: &oxide.EphemeralIpCreate{},
		})

		return err
	}
	refused := func(status int, code string) {
		t.Helper()

		_, err := r.attachIP(f.Id, i.Id)
		wantError(t, err, status, code, "")
		wantError(t, ephemeral(), status, code, "")
	}

	must(0, r.startInstance(i.Id))(t)
	refused(503, "ServiceNotAvailable")
	step()
	r.reaches(i.Id, oxide.InstanceStateRunning)
	must(r.attachIP(f.Id, i.Id))(t)
	must(0, r.detachIP(f.Id))(t)

	must(0, r.Crash(i.Id))(t)
	refused(503, "ServiceNotAvailable")
	step()
	r.reaches(i.Id, oxide.InstanceStateFailed)
	refused(400, "InvalidRequest")
}

// While one attach is under way another of the same address has to wait.
func TestAddressOnTheMove(t *testing.T) {
	r, step := newStepped(t, func(c *Config) { c.Latencies = &Latencies{ExternalIP: time.Second} })
	i, j := r.instance("i"), r.instance("j")
	f := r.floatingIP("f")

	attached := inFlight(t, func() error {
		_, err := r.attachIP(f.Id, i.Id)

		return err
	})

	eventually(t, "the address on its way", func() bool { return r.ipKinds(i.Id) == "[snat floating]" })

	_, err := r.attachIP(f.Id, j.Id)
	wantError(t, err, 503, "ServiceNotAvailable", "Service Unavailable")
	wantError(t, r.detachIP(f.Id), 503, "ServiceNotAvailable", "")
	step()
	attached()

	detached := inFlight(t, func() error { return r.detachIP(f.Id) })

	eventually(t, "the address gone", func() bool { return r.ipKinds(i.Id) == "[snat]" })
	wantError(t, r.deleteIP(f.Id), 400, "InvalidRequest", "while attached")
	step()
	detached()
	must(0, r.deleteIP(f.Id))(t)
}

func TestEphemeralIPs(t *testing.T) {
	r := newRig(t, onlyVMs, func(c *Config) {
		c.Pools = []Pool{
			{Name: "four", IPVersion: "v4", Default: true, First: "192.0.2.1", Size: 20},
			{Name: "more", IPVersion: "v4", First: "192.0.2.101", Size: 20},
			{Name: "six", IPVersion: "v6", Default: true, First: "2001:db8::1", Size: 20},
		}
	})
	i := r.instance("i")
	attach := func(id string, sel oxide.PoolSelector) (*oxide.ExternalIp, error) {
		return r.client.InstanceEphemeralIpAttach(t.Context(), oxide.InstanceEphemeralIpAttachParams{
			Instance: oxide.NameOrId(id), Body: &oxide.EphemeralIpCreate{PoolSelector: sel},
		})
	}
	auto := func(v oxide.IpVersion) oxide.PoolSelector {
		return oxide.PoolSelector{Value: &oxide.PoolSelectorAuto{IpVersion: v}}
	}
	named := func(n string) oxide.PoolSelector {
		return oxide.PoolSelector{Value: &oxide.PoolSelectorExplicit{Pool: oxide.NameOrId(n)}}
	}
	detach := func(v oxide.IpVersion) error {
		return r.client.InstanceEphemeralIpDetach(t.Context(), oxide.InstanceEphemeralIpDetachParams{Instance: oxide.NameOrId(i.Id), IpVersion: v})
	}

	_, err := attach(i.Id, auto(""))
	wantError(t, err, 400, "InvalidRequest", "multiple default IP pools")

	_, err = attach(i.Id, named("none"))
	wantError(t, err, 404, "ObjectNotFound", `ip-pool with name "none"`)

	first, _ := must(attach(i.Id, auto("v4")))(t).AsEphemeral()
	if again, is := must(attach(i.Id, named("four")))(t).AsEphemeral(); !is || again.Ip != first.Ip {
		t.Errorf("asked twice: %+v and %+v", first, again)
	}

	_, err = attach(i.Id, named("more"))
	wantError(t, err, 400, "InvalidRequest", "more than 1 ephemeral IPv4")
	must(attach(i.Id, auto("v6")))(t)

	if got := r.ipKinds(i.Id); got != "[snat ephemeral ephemeral]" {
		t.Errorf("the instance has %s", got)
	}

	wantError(t, detach(""), 400, "InvalidRequest", "IP version must be specified")
	must(0, detach("v4"))(t)
	wantError(t, detach("v4"), 400, "InvalidRequest", "does not have an ephemeral IP")
	must(0, detach(""))(t)
	wantError(t, detach(""), 400, "InvalidRequest", "does not have an ephemeral IP")

	only4 := r.instance("only4", withNICs(nicIn("default", "")))
	_, err = attach(only4.Id, auto("v6"))
	wantError(t, err, 400, "InvalidRequest", "no IPv6 stack")

	none := r.instance("none", func(b *oxide.InstanceCreate) {
		b.NetworkInterfaces = oxide.InstanceNetworkInterfaceAttachment{Value: &oxide.InstanceNetworkInterfaceAttachmentNone{}}
	})
	_, err = attach(none.Id, auto("v4"))
	wantError(t, err, 400, "InvalidRequest", "no IPv4 stack")

	_, err = r.createInstance("two", func(b *oxide.InstanceCreate) {
		b.ExternalIps = []oxide.ExternalIpCreate{ephemeral("v4"), ephemeral("v4")}
	})
	wantError(t, err, 400, "InvalidRequest", "more than 1 ephemeral IPv4")
}

// What stays of a pool is told to those who may look at the fleet.
func TestPoolAccounting(t *testing.T) {
	r := newRig(t, fromPool("192.0.2.1", 10), func(c *Config) {
		c.Tokens = []Token{{Value: DefaultToken}, {Value: "fleet", FleetViewer: true}}
	})
	left := func() float64 {
		t.Helper()

		return must(r.as("fleet").SystemIpPoolUtilizationView(t.Context(), oxide.SystemIpPoolUtilizationViewParams{Pool: "pool"}))(t).Remaining
	}

	_, err := r.client.SystemIpPoolUtilizationView(t.Context(), oxide.SystemIpPoolUtilizationViewParams{Pool: "pool"})
	wantError(t, err, 403, "Forbidden", "")

	for n := range 4 {
		r.instance(fmt.Sprintf("i%d", n)) // they share an address
	}

	f := r.floatingIP("f")
	if n := left(); n != 8 {
		t.Errorf("%v are left", n)
	}

	r.instance("five", func(b *oxide.InstanceCreate) { b.ExternalIps = []oxide.ExternalIpCreate{ephemeral("v4")} })
	if n := left(); n != 6 {
		t.Errorf("%v are left", n)
	}

	r.removeInstance("five")
	must(0, r.deleteIP(f.Id))(t)

	if n := left(); n != 9 {
		t.Errorf("%v are left", n)
	}
}
