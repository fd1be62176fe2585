package rack

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/oxidecomputer/oxide.go/oxide"
)

// The limits of an instance: its size, and the number of what it has.
func TestLimitsOfInstances(t *testing.T) {
	memory := func(r *rig, n int64) error {
		return r.instanceWith(func(b *oxide.InstanceCreate) { b.Memory = oxide.ByteCount(n) })
	}
	keys := func(r *rig, n int64) error {
		return r.instanceWith(func(b *oxide.InstanceCreate) {
			for k := range n {
				name := fmt.Sprintf("k%d", k)
				must(0, r.AddSSHKey("provider", name, "ssh-ed25519 AAAA"))(r.t)
				b.SshPublicKeys = append(b.SshPublicKeys, oxide.NameOrId(name))
			}
		})
	}
	groups := func(r *rig, n int64) error {
		var all []oxide.NameOrId
		for k := range n {
			all = append(all, oxide.NameOrId(r.group(fmt.Sprintf("g%d", k), oxide.AffinityPolicyAllow).Name))
		}

		return r.instanceWith(func(b *oxide.InstanceCreate) { b.AntiAffinityGroups = all })
	}
	members := func(r *rig, n int64) error {
		g := oxide.NameOrId(r.group("g", oxide.AffinityPolicyAllow).Id)

		for k := range n - 1 {
			r.instance(fmt.Sprintf("i%d", k), func(b *oxide.InstanceCreate) { b.AntiAffinityGroups = []oxide.NameOrId{g} })
		}

		return r.instanceWith(func(b *oxide.InstanceCreate) { b.AntiAffinityGroups = []oxide.NameOrId{g} })
	}
	started := func(r *rig, cpus, bytes int64) error {
		r.cfg.Quota.CPUs, r.cfg.Quota.Memory = 4, 4*gib

		return r.startInstance(r.instance("i", func(b *oxide.InstanceCreate) {
			b.Ncpus, b.Memory = oxide.InstanceCpuCount(cpus), oxide.ByteCount(bytes)
		}).Id)
	}

	tryLimits(t, []limit{
		{"vCPUs", 254, 255, func(r *rig, n int64) error {
			return r.instanceWith(func(b *oxide.InstanceCreate) { b.Ncpus = oxide.InstanceCpuCount(n) })
		}, 400, "InvalidValue", "vCPUs"},
		{"bytes of memory", 1536 * gib, 1537 * gib, memory, 400, "InvalidValue", `unsupported value for "size"`},
		{"least bytes of memory", gib, gib / 2, memory, 400, "InvalidValue", `unsupported value for "size"`},
		{"whole GiB of memory", 2 * gib, 2*gib + 1, memory, 400, "InvalidValue", "divisible"},
		{"bytes of user data", 32 << 10, 32<<10 + 1, func(r *rig, n int64) error {
			return r.instanceWith(func(b *oxide.InstanceCreate) { b.UserData = base64.StdEncoding.EncodeToString(noise(int(n))) })
		}, 400, "", "maximum user data size"},
		{"SSH keys", 100, 101, keys, 400, "InvalidRequest", "100 ssh keys"},
		{"anti-affinity groups", 16, 17, groups, 400, "InvalidRequest", "at most 16"},
		{"members of a group", 32, 33, members, 400, "InvalidRequest", "at most 32"},
		{"multicast groups", 32, 33, func(r *rig, n int64) error {
			return r.instanceWith(func(b *oxide.InstanceCreate) {
				for k := range n {
					b.MulticastGroups = append(b.MulticastGroups, oxide.MulticastGroupJoinSpec{Group: oxide.MulticastGroupIdentifier(fmt.Sprintf("224.1.1.%d", k))})
				}
			})
		}, 400, "InvalidRequest", "32 multicast groups"},
		{"silo's vCPUs", 4, 5, func(r *rig, n int64) error { return started(r, n, gib) }, 507, "InsufficientCapacity", "vCPU Limit Exceeded"},
		{"silo's memory", 4 * gib, 5 * gib, func(r *rig, n int64) error { return started(r, 1, n) }, 507, "InsufficientCapacity", "Memory Limit Exceeded"},
	})
}

// The limits of what hangs on an instance: disks, interfaces and addresses.
func TestLimitsOfAttachments(t *testing.T) {
	disks := func(r *rig, n int64, boot bool) error {
		return r.instanceWith(func(b *oxide.InstanceCreate) {
			if boot {
				b.BootDisk = newDiskNamed("boot", gib)
				n--
			}

			for k := range n {
				b.Disks = append(b.Disks, newDiskNamed(fmt.Sprintf("data%d", k), gib))
			}
		})
	}
	subnets := func(r *rig, n int64) (out []oxide.InstanceNetworkInterfaceCreate) {
		for k := range n {
			name := fmt.Sprintf("s%d", k)
			must(r.createSubnet("default", name, fmt.Sprintf("10.0.%d.0/24", k)))(r.t)
			out = append(out, nicIn(name, ""))
		}

		return out
	}
	floating := func(r *rig, n int64) (out []oxide.ExternalIpCreate) {
		for k := range n {
			f := r.floatingIP(fmt.Sprintf("f%d", k))
			out = append(out, oxide.ExternalIpCreate{Value: &oxide.ExternalIpCreateFloating{FloatingIp: oxide.NameOrId(f.Name)}})
		}

		return out
	}
	ephemerals := []oxide.ExternalIpCreate{ephemeral("v4"), ephemeral("v6"), ephemeral("v4")}

	tryLimits(t, []limit{
		{"disks", 12, 13, func(r *rig, n int64) error { return disks(r, n, false) }, 400, "InvalidRequest", "more than 12 disks"},
		{"disks with the boot disk", 12, 13, func(r *rig, n int64) error { return disks(r, n, true) }, 400, "InvalidRequest", "more than 12 disks"},
		{"disks attached later", 12, 13, func(r *rig, n int64) error {
			must(0, disks(r, n-1, false))(r.t)
			r.disk("late", gib, blank(0))
			_, err := r.client.InstanceDiskAttach(r.t.Context(), oxide.InstanceDiskAttachParams{Project: demo, Instance: "i", Body: &oxide.DiskPath{Disk: "late"}})

			return err
		}, 400, "InvalidRequest", "more than 12 disks"},
		{"interfaces", 8, 9, func(r *rig, n int64) error {
			return r.instanceWith(withNICs(subnets(r, n)...))
		}, 400, "InvalidRequest", "more than 8 network interfaces"},
		{"interfaces added later", 8, 9, func(r *rig, n int64) error {
			all := subnets(r, n)
			i := r.instance("i", withNICs(all[:n-1]...))
			_, err := r.addNIC(i.Id, all[n-1])

			return err
		}, 400, "InvalidRequest", "more than 8 network interfaces"},
		{"external addresses", 32, 33, func(r *rig, n int64) error {
			all := floating(r, n)

			return r.instanceWith(func(b *oxide.InstanceCreate) { b.ExternalIps = all })
		}, 400, "InvalidRequest", "more than 32 external IP"},
		{"external addresses attached later", 32, 33, func(r *rig, n int64) error {
			all := floating(r, n)
			i := r.instance("i", func(b *oxide.InstanceCreate) { b.ExternalIps = all[:n-1] })
			last := must(r.client.FloatingIpView(r.t.Context(), oxide.FloatingIpViewParams{Project: demo, FloatingIp: oxide.NameOrId(fmt.Sprintf("f%d", n-1))}))(r.t)
			_, err := r.attachIP(last.Id, i.Id)

			return err
		}, 400, "InvalidRequest", "more than 32 external IP"},
		{"ephemeral addresses", 2, 3, func(r *rig, n int64) error {
			must(0, r.addPool(Pool{Name: "six", IPVersion: "v6", Default: true, First: "2001:db8::1", Size: 20}))(r.t)

			return r.instanceWith(func(b *oxide.InstanceCreate) { b.ExternalIps = ephemerals[:n] })
		}, 400, "InvalidRequest", "more than 2 ephemeral"},
		{"instances that share an address", 4, 5, func(r *rig, n int64) error {
			p := must(r.defaultPool("v4"))(r.t)
			p.addrs = p.addrs[:1]

			for k := range n - 1 {
				r.instance(fmt.Sprintf("i%d", k))
			}

			return r.instanceWith(func(*oxide.InstanceCreate) {})
		}, 507, "InsufficientCapacity", "No external IP addresses available"},
		{"longest prefix of a subnet", 26, 27, func(r *rig, n int64) error {
			_, err := r.createSubnet("default", "n", fmt.Sprintf("10.0.0.0/%d", n))

			return err
		}, 400, "InvalidRequest", "between 8 and 26"},
		{"shortest prefix of a subnet", 8, 7, func(r *rig, n int64) error {
			return r.post("/v1/vpc-subnets?project=demo&vpc=default", named("ipv4_block", fmt.Sprintf("10.0.0.0/%d", n)))
		}, 400, "InvalidRequest", "between 8 and 26"},
		{"first free address of a subnet", 5, 4, func(r *rig, n int64) error {
			return r.instanceWith(withNICs(nicIn("default", fmt.Sprintf("172.30.0.%d", n))))
		}, 400, "InvalidRequest", "reserved"},
		{"last free address of a subnet", 254, 255, func(r *rig, n int64) error {
			return r.instanceWith(withNICs(nicIn("default", fmt.Sprintf("172.30.3.%d", n))))
		}, 400, "InvalidRequest", "reserved"},
		{"addresses of a subnet", 58, 59, func(r *rig, n int64) error {
			must(r.createSubnet("default", "small", "10.0.0.0/26"))(r.t)

			for k := range n - 1 {
				r.instance(fmt.Sprintf("i%d", k), withNICs(nicIn("small", "")))
			}

			return r.instanceWith(withNICs(nicIn("small", "")))
		}, 400, "InvalidRequest", "No available IPv4 addresses for interface in subnet"},
	})
}
