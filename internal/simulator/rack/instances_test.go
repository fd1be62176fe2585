package rack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// wanted is a small instance that is not started.
func wanted(name string, change ...func(*oxide.InstanceCreate)) *oxide.InstanceCreate {
	b := &oxide.InstanceCreate{
		Name: oxide.Name(name), Description: "an instance", Hostname: oxide.Hostname(name),
		Ncpus: 2, Memory: oxide.ByteCount(4 * gib),
		SshPublicKeys: []oxide.NameOrId{}, Start: oxide.NewPointer(false),
	}
	for _, f := range change {
		f(b)
	}

	return b
}

func newDiskNamed(name string, size int64) oxide.InstanceDiskAttachment {
	return oxide.InstanceDiskAttachment{Value: &oxide.InstanceDiskAttachmentCreate{
		Name: oxide.Name(name), Description: "", Size: oxide.ByteCount(size), DiskBackend: blank(0),
	}}
}

func existing(name string) oxide.InstanceDiskAttachment {
	return oxide.InstanceDiskAttachment{Value: &oxide.InstanceDiskAttachmentAttach{Name: oxide.Name(name)}}
}

func (r *rig) createInstance(name string, change ...func(*oxide.InstanceCreate)) (*oxide.Instance, error) {
	return r.client.InstanceCreate(r.t.Context(), oxide.InstanceCreateParams{Project: demo, Body: wanted(name, change...)})
}

func (r *rig) instance(name string, change ...func(*oxide.InstanceCreate)) *oxide.Instance {
	r.t.Helper()

	return must(r.createInstance(name, change...))(r.t)
}

func (r *rig) runState(id string) oxide.InstanceState {
	r.t.Helper()

	return must(r.client.InstanceView(r.t.Context(), oxide.InstanceViewParams{Instance: oxide.NameOrId(id)}))(r.t).RunState
}

func (r *rig) reaches(id string, st oxide.InstanceState) {
	r.t.Helper()
	eventually(r.t, "instance "+string(st), func() bool { return r.runState(id) == st })
}

func withNICs(nics ...oxide.InstanceNetworkInterfaceCreate) func(*oxide.InstanceCreate) {
	return func(b *oxide.InstanceCreate) {
		b.NetworkInterfaces = oxide.InstanceNetworkInterfaceAttachment{Value: &oxide.InstanceNetworkInterfaceAttachmentCreate{Params: nics}}
	}
}

func nicIn(subnet string, address string) oxide.InstanceNetworkInterfaceCreate {
	ip := oxide.Ipv4Assignment{Value: &oxide.Ipv4AssignmentAuto{}}
	if address != "" {
		ip = oxide.Ipv4Assignment{Value: &oxide.Ipv4AssignmentExplicit{Value: address}}
	}

	return oxide.InstanceNetworkInterfaceCreate{
		Name: oxide.Name("nic-" + subnet), VpcName: "default", SubnetName: oxide.Name(subnet),
		IpConfig: oxide.PrivateIpStackCreate{Value: &oxide.PrivateIpStackCreateV4{Value: oxide.PrivateIpv4StackCreate{Ip: ip}}},
	}
}

// What a create refuses besides what is beyond its limits, and that nothing of
// it stays.
func TestInstanceCreateRefuses(t *testing.T) {
	r := newRig(t)

	for _, tt := range []struct {
		what   string
		change func(*oxide.InstanceCreate)
		code   string
		part   string
	}{
		{"user data that is no base64", func(b *oxide.InstanceCreate) { b.UserData = "A" }, "", "base64"},
		{"no hostname", func(b *oxide.InstanceCreate) { b.Hostname = "a_b" }, "", "hostname"},
		{"hostname with a dot at its end", func(b *oxide.InstanceCreate) { b.Hostname = "a." }, "", "hostname"},
		{"jumbo frames", func(b *oxide.InstanceCreate) { b.EnableJumboFrames = oxide.NewPointer(true) }, "InvalidRequest", "jumbo"},
		{"no NIC listed", withNICs([]oxide.InstanceNetworkInterfaceCreate{}...), "InvalidRequest", "All interfaces must be in the same VPC"},
		{"boot disk listed twice", func(b *oxide.InstanceCreate) {
			b.BootDisk, b.Disks = newDiskNamed("boot", gib), []oxide.InstanceDiskAttachment{existing("boot")}
		}, "InvalidRequest", "must not also be"[:8]},
		{"unknown key", func(b *oxide.InstanceCreate) { b.SshPublicKeys = []oxide.NameOrId{"key"} }, "ObjectNotFound", "ssh-key"},
		{"unknown group", func(b *oxide.InstanceCreate) { b.AntiAffinityGroups = []oxide.NameOrId{"g"} }, "ObjectNotFound", "anti-affinity-group"},
		{"floating IP that is not there", func(b *oxide.InstanceCreate) {
			b.ExternalIps = []oxide.ExternalIpCreate{{Value: &oxide.ExternalIpCreateFloating{FloatingIp: "f"}}}
		}, "ObjectNotFound", "floating-ip"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			body := must(json.Marshal(wanted("i", tt.change)))(t)

			status, e, _ := r.raw("POST", "/v1/instances?project=demo", string(body))
			if status < 400 || e.ErrorCode != tt.code || !strings.Contains(e.Message, tt.part) {
				t.Errorf("%d %+v", status, e)
			}

			if s := r.Summary(); len(s.Instances) != 0 || len(s.Disks) != 0 || s.Provisioned.Storage != 0 {
				t.Errorf("left over: %+v", s)
			}
		})
	}
}

// removeInstance deletes a stopped instance and all disks of the project.
func (r *rig) removeInstance(name string) {
	r.t.Helper()
	must(0, r.client.InstanceDelete(r.t.Context(), oxide.InstanceDeleteParams{Project: demo, Instance: oxide.NameOrId(name)}))(r.t)

	for _, d := range must(r.client.DiskListAllPages(r.t.Context(), oxide.DiskListParams{Project: demo}))(r.t) {
		must(0, r.client.DiskDelete(r.t.Context(), oxide.DiskDeleteParams{Disk: oxide.NameOrId(d.Id)}))(r.t)
	}
}

func TestInstanceIsMadeWithAllItHas(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()

	must(r.client.CurrentUserSshKeyCreate(ctx, oxide.CurrentUserSshKeyCreateParams{Body: &oxide.SshKeyCreate{Name: "key", PublicKey: "ssh-ed25519 AAAA"}}))(t)
	r.disk("old", gib, blank(0))

	i := r.instance("i", func(b *oxide.InstanceCreate) {
		b.BootDisk = newDiskNamed("boot", 2*gib)
		b.Disks = []oxide.InstanceDiskAttachment{existing("old"), newDiskNamed("data", gib)}
		b.SshPublicKeys = nil
		b.CpuPlatform = oxide.InstanceCpuPlatformAmdMilan
		b.AutoRestartPolicy = oxide.InstanceAutoRestartPolicyNever
		b.ExternalIps = []oxide.ExternalIpCreate{{Value: &oxide.ExternalIpCreateEphemeral{}}}
	})
	if i.RunState != oxide.InstanceStateStopped || i.BootDiskId == "" || *i.AutoRestartEnabled || i.CpuPlatform != oxide.InstanceCpuPlatformAmdMilan {
		t.Errorf("instance is %+v", i)
	}

	id := oxide.NameOrId(i.Id)

	disks := must(r.client.InstanceDiskListAllPages(ctx, oxide.InstanceDiskListParams{Instance: id}))(t)
	if len(disks) != 3 || disks[0].Id != i.BootDiskId {
		t.Errorf("disks are %+v", disks)
	}

	for _, d := range disks {
		if att, is := d.State.AsAttached(); !is || att.Instance != i.Id {
			t.Errorf("disk %s is %s", d.Name, d.State.State())
		}
	}

	nics := must(r.client.InstanceNetworkInterfaceListAllPages(ctx, oxide.InstanceNetworkInterfaceListParams{Instance: id}))(t)
	if len(nics) != 1 || nics[0].Name != "net0" || !*nics[0].Primary {
		t.Fatalf("NICs are %+v", nics)
	}

	if stack, is := nics[0].IpStack.AsDualStack(); !is || stack.Value.V4.Ip != "172.30.0.5" {
		t.Errorf("addresses are %+v", nics[0].IpStack)
	}

	ips := must(r.client.InstanceExternalIpList(ctx, oxide.InstanceExternalIpListParams{Instance: id}))(t)
	if len(ips.Items) != 2 || ips.Items[0].Kind() != oxide.ExternalIpKindSnat || ips.Items[1].Kind() != oxide.ExternalIpKindEphemeral {
		t.Errorf("external addresses are %+v", ips.Items)
	}

	keys := must(r.client.InstanceSshPublicKeyListAllPages(ctx, oxide.InstanceSshPublicKeyListParams{Instance: id}))(t)
	if len(keys) != 1 || keys[0].Name != "key" {
		t.Errorf("keys are %+v", keys)
	}

	none := r.instance("none")
	if keys := must(r.client.InstanceSshPublicKeyListAllPages(ctx, oxide.InstanceSshPublicKeyListParams{Instance: oxide.NameOrId(none.Id)}))(t); len(keys) != 0 {
		t.Errorf("an empty list of keys gave %+v", keys)
	}

	must(0, r.client.InstanceDelete(ctx, oxide.InstanceDeleteParams{Instance: id}))(t)

	for _, d := range disks {
		if st := r.diskState(d.Id); st != "detached" {
			t.Errorf("after the delete disk %s is %s", d.Name, st)
		}
	}

	_, err := r.client.InstanceView(ctx, oxide.InstanceViewParams{Instance: id})
	wantError(t, err, 404, "ObjectNotFound", "instance with id")
	wantError(t, r.client.InstanceDelete(ctx, oxide.InstanceDeleteParams{Instance: id}), 404, "ObjectNotFound", "instance with id")
	r.instance("i")
}

// Invariant: a create that fails leaves nothing of its own, and keeps what was
// there before.
func TestInstanceCreateUnwinds(t *testing.T) {
	r := newRig(t)
	r.disk("old", gib, blank(0))
	busy := r.disk("busy", gib, importing())
	r.disk("taken", gib, blank(0))

	for _, tt := range []struct {
		what   string
		disks  []oxide.InstanceDiskAttachment
		status int
		code   string
		part   string
	}{
		{"missing disk", []oxide.InstanceDiskAttachment{existing("old"), newDiskNamed("new", gib), existing("none")}, 404, "ObjectNotFound", "disk"},
		{"disk in a wrong state", []oxide.InstanceDiskAttachment{existing("old"), newDiskNamed("new", gib), existing("busy")}, 400, "InvalidRequest", "invalid state"},
		{"disk name taken", []oxide.InstanceDiskAttachment{newDiskNamed("new", gib), newDiskNamed("taken", gib)}, 400, "ObjectAlreadyExists", `already exists: disk "taken"`},
	} {
		_, err := r.createInstance("i", func(b *oxide.InstanceCreate) { b.Disks = tt.disks })
		wantError(t, err, tt.status, tt.code, tt.part)

		s := r.Summary()
		if len(s.Instances) != 0 || s.Disks["detached"] != 2 || s.Disks["import_ready"] != 1 || s.Provisioned.Storage != 3*gib {
			t.Errorf("%s: left over: %+v", tt.what, s)
		}
	}

	if st := r.diskState(busy.Id); st != "import_ready" {
		t.Errorf("the busy disk is %s", st)
	}

	first := r.instance("first", func(b *oxide.InstanceCreate) { b.Disks = []oxide.InstanceDiskAttachment{existing("old")} })
	_, err := r.createInstance("second", func(b *oxide.InstanceCreate) { b.Disks = []oxide.InstanceDiskAttachment{existing("old")} })
	wantError(t, err, 400, "InvalidRequest", "attached to another instance")

	_, err = r.createInstance("first")
	wantError(t, err, 400, "ObjectAlreadyExists", `already exists: instance "first"`)

	wantError(t, r.client.DiskDelete(t.Context(), oxide.DiskDeleteParams{Project: demo, Disk: "old"}), 400, "InvalidRequest", "disk is attached")
	must(r.client.InstanceView(t.Context(), oxide.InstanceViewParams{Instance: oxide.NameOrId(first.Id)}))(t)
}

func TestAddressesOfSubnets(t *testing.T) {
	r := newRig(t)

	r.instance("a", withNICs(nicIn("default", "172.30.0.9")))

	for address, part := range map[string]string{
		"172.30.0.9": "not available", "172.30.0.4": "reserved", "172.30.3.255": "reserved", "172.30.4.0": "not contained",
	} {
		_, err := r.createInstance("b", withNICs(nicIn("default", address)))
		wantError(t, err, 400, "InvalidRequest", part)
	}

	r.removeInstance("a")
	r.instance("b", withNICs(nicIn("default", "172.30.0.9")))

	_, err := r.createInstance("c", withNICs(nicIn("default", ""), oxide.InstanceNetworkInterfaceCreate{
		Name: "second", VpcName: "default", SubnetName: "default",
	}))
	wantError(t, err, 400, "InvalidRequest", "distinct VPC Subnet")

	_, err = r.createInstance("c", withNICs(nicIn("none", "")))
	wantError(t, err, 404, "ObjectNotFound", `vpc-subnet with name "none"`)

	_, err = r.createInstance("c", withNICs(nicIn("default", ""), oxide.InstanceNetworkInterfaceCreate{
		Name: "second", VpcName: "other", SubnetName: "default",
	}))
	wantError(t, err, 400, "InvalidRequest", "same VPC")

	var nine []oxide.InstanceNetworkInterfaceCreate
	for i := range 9 {
		nine = append(nine, nicIn(fmt.Sprintf("s%d", i), ""))
	}

	_, err = r.createInstance("c", withNICs(nine...))
	wantError(t, err, 400, "InvalidRequest", "more than 8 network interfaces")

	_, err = r.createInstance("c", withNICs(nine[:8]...))
	wantError(t, err, 404, "ObjectNotFound", "vpc-subnet")
}

func ephemeral(version oxide.IpVersion) oxide.ExternalIpCreate {
	return oxide.ExternalIpCreate{Value: &oxide.ExternalIpCreateEphemeral{
		PoolSelector: oxide.PoolSelector{Value: &oxide.PoolSelectorAuto{IpVersion: version}},
	}}
}

// Four instances share an address; when the pool is empty a plain instance can
// not be made either.
func TestSNATSlicesAndEmptyPool(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Pools = []Pool{{Name: "small", IPVersion: "v4", Default: true, First: "192.0.2.1", Size: 2}}
	})

	for i := range 8 {
		r.instance(fmt.Sprintf("i%d", i))
	}

	_, err := r.createInstance("more")
	wantError(t, err, 507, "InsufficientCapacity", "Insufficient capacity: No external IP addresses available")

	ips := must(r.client.InstanceExternalIpList(t.Context(), oxide.InstanceExternalIpListParams{Project: demo, Instance: "i5"}))(t)
	if snat, is := ips.Items[0].AsSnat(); !is || snat.Ip != "192.0.2.2" || *snat.FirstPort != 16384 || *snat.LastPort != 32767 {
		t.Errorf("second address's second slice is %+v", ips.Items[0])
	}

	r.instance("none", func(b *oxide.InstanceCreate) {
		b.NetworkInterfaces = oxide.InstanceNetworkInterfaceAttachment{Value: &oxide.InstanceNetworkInterfaceAttachmentNone{}}
	})
	r.removeInstance("i5")
	r.instance("more")
}

func TestDefaultPools(t *testing.T) {
	none := newRig(t, func(c *Config) { c.Pools = []Pool{} })

	_, err := none.createInstance("i")
	wantError(t, err, 404, "ObjectNotFound", "default unicast IPv4 pool for current silo")

	none.instance("six", func(b *oxide.InstanceCreate) {
		b.NetworkInterfaces = oxide.InstanceNetworkInterfaceAttachment{Value: &oxide.InstanceNetworkInterfaceAttachmentDefaultIpv6{}}
	})

	both := newRig(t, func(c *Config) {
		c.Pools = []Pool{
			{Name: "four", IPVersion: "v4", Default: true, First: "192.0.2.1", Size: 20},
			{Name: "six", IPVersion: "v6", Default: true, First: "2001:db8::1", Size: 20},
		}
	})
	with := func(ips ...oxide.ExternalIpCreate) func(*oxide.InstanceCreate) {
		return func(b *oxide.InstanceCreate) { b.ExternalIps = ips }
	}

	_, err = both.createInstance("i", with(oxide.ExternalIpCreate{Value: &oxide.ExternalIpCreateEphemeral{}}))
	wantError(t, err, 400, "InvalidRequest", "multiple default IP pools")

	both.instance("i", with(ephemeral("v4"), ephemeral("v6")))

	_, err = both.createInstance("j", with(ephemeral("v4"), ephemeral("v6"), ephemeral("v4")))
	wantError(t, err, 400, "InvalidRequest", "more than 2 ephemeral")

	_, err = both.createInstance("j", with(ephemeral("v6")), withNICs(nicIn("default", "")))
	wantError(t, err, 400, "InvalidRequest", "no IPv6 stack")

	many := make([]oxide.ExternalIpCreate, 33)
	for i := range many {
		many[i] = ephemeral("v4")
	}

	_, err = both.createInstance("j", with(many...))
	wantError(t, err, 400, "InvalidRequest", "more than 32 external IP")
}
