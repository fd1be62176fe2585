package rack

import (
	"encoding/base64"
	"net/netip"
	"strings"
)

type diskAttachment struct {
	create bool
	name   string
	spec   diskSpec
}

type externalIPSpec struct {
	ephemeral bool
	pool      poolSelector // of an ephemeral address
	floating  string
}

type instanceSpec struct {
	name, description, hostname string
	ncpus                       int
	memory                      int64
	disks                       []diskAttachment
	boot                        *diskAttachment
	nics                        []nicSpec
	explicitNICs                bool // interfaces were listed, if only none
	ips                         []externalIPSpec
	multicast                   int // groups to join: multicast is off here, they are ignored
	userData                    []byte
	allKeys                     bool
	keys, groups                []string
	policy, platform            string
	jumbo, start                bool
}

func (o *object) instanceSpec() instanceSpec {
	i := instanceSpec{
		name: o.name("name"), description: o.text("description"), hostname: o.hostname("hostname"),
		ncpus: int(o.number("ncpus", 1<<16-1)), memory: o.bytes("memory"),
		policy:    o.optionalOneOf("auto_restart_policy", "never", "best_effort"),
		platform:  o.optionalOneOf("cpu_platform", "amd_milan", "amd_turin", "amd_turin_v2"),
		jumbo:     o.boolOr("enable_jumbo_frames", false),
		start:     o.boolOr("start", true),
		userData:  o.userData(),
		multicast: o.multicastGroups(),
		groups:    o.namesOrIDs("anti_affinity_groups", o.list("anti_affinity_groups")),
	}

	for _, d := range o.objects("disks") {
		i.disks = append(i.disks, d.diskAttachment())
		o.adopt(d)
	}

	if _, has := o.value("boot_disk"); has {
		d := o.child("boot_disk")
		boot := d.diskAttachment()
		i.boot = &boot
		o.adopt(d)
	}

	o.instanceKeys(&i)
	o.instanceNICs(&i)

	for _, e := range o.objects("external_ips") {
		i.ips = append(i.ips, e.externalIP())
		o.adopt(e)
	}

	return i
}

// instanceKeys: null and absent mean all the caller's keys, a list those named.
func (o *object) instanceKeys(i *instanceSpec) {
	raw, has := o.value("ssh_public_keys")
	if !has {
		i.allKeys = true

		return
	}

	i.keys = o.namesOrIDs("ssh_public_keys", o.listOf("ssh_public_keys", raw))
}

func (o *object) userData() []byte {
	text := o.textOr("user_data", "")
	data, err := base64.StdEncoding.Strict().DecodeString(text)

	switch {
	case strings.ContainsAny(text, "\r\n"):
		o.fail("user_data", "invalid base64 data: line ends") // which Go's decoder passes over
	case err != nil:
		o.fail("user_data", "invalid base64 data: %v", err)
	case len(data) > maxUserData:
		o.fail("user_data", "maximum user data size is %d bytes", maxUserData)
	}

	return data
}

func (o *object) diskAttachment() diskAttachment {
	if o.oneOf("type", "create", "attach") == "attach" {
		return diskAttachment{name: o.name("name")}
	}

	spec := o.diskSpec()

	return diskAttachment{create: true, name: spec.name, spec: spec}
}

func (o *object) externalIP() externalIPSpec {
	if o.oneOf("type", "ephemeral", "floating") == "floating" {
		return externalIPSpec{floating: o.nameOrID("floating_ip")}
	}

	return externalIPSpec{ephemeral: true, pool: o.poolSelector()}
}

// multicastGroups reads the groups to join, and counts them.
func (o *object) multicastGroups() int {
	groups := o.objects("multicast_groups")

	for _, g := range groups {
		g.text("group")
		g.optionalOneOf("ip_version", "v4", "v6")

		if raw, has := g.value("source_ips"); has {
			for _, ip := range g.listOf("source_ips", raw) {
				if _, err := netip.ParseAddr(g.textOf("source_ips", ip)); g.err == nil && err != nil {
					g.fail("source_ips", "invalid IP address syntax")
				}
			}
		}

		o.adopt(g)
	}

	return len(groups)
}

// checkSize applies the limits of what a VM can be.
func (s *Server) checkSize(ncpus int, memory int64, jumbo bool) error {
	switch {
	case ncpus > maxCPUs:
		return invalidValue("ncpus", "cannot have more than %d vCPUs per instance", maxCPUs)
	case memory < gib:
		return invalidValue("size", "memory must be at least %d bytes", gib)
	case memory%gib != 0:
		return invalidValue("size", "memory must be divisible by %d bytes", gib)
	case memory > maxMemory:
		return invalidValue("size", "memory must be less than or equal to %d bytes", maxMemory)
	case jumbo && !s.cfg.JumboFrames:
		return invalidRequest("jumbo frames are not enabled on this rack")
	}

	return nil
}

// check applies the limits that the control plane knows before it begins.
func (i *instanceSpec) check(s *Server) error {
	if err := s.checkSize(i.ncpus, i.memory, i.jumbo); err != nil {
		return err
	}

	disks := len(i.disks)
	if i.boot != nil {
		disks++
	}

	switch {
	case disks > maxDisks:
		return invalidRequest("cannot attach more than %d disks to instance", maxDisks)
	case len(i.nics) > maxNICs:
		return invalidRequest("cannot attach more than %d network interfaces to instance", maxNICs)
	case len(i.ips) > maxExternalIPs:
		return invalidRequest("An instance may not have more than %d external IP addresses", maxExternalIPs)
	case i.multicast > maxExternalIPs:
		return invalidRequest("An instance may not join more than %d multicast groups", maxExternalIPs)
	case len(i.keys) > maxInstanceKeys:
		return invalidRequest("cannot attach more than %d ssh keys to instance", maxInstanceKeys)
	}

	if err := i.checkNames(); err != nil {
		return err
	}

	return i.checkEphemeral()
}

func (i *instanceSpec) checkNames() error {
	if i.boot != nil {
		for _, d := range i.disks {
			if d.name == i.boot.name {
				return invalidRequest("boot disk %q must not be listed in `disks`", d.name)
			}
		}
	}

	vpcs := map[string]bool{}
	for _, n := range i.nics {
		vpcs[n.vpc] = true
	}

	if len(vpcs) > 1 || i.explicitNICs && len(vpcs) == 0 {
		return invalidRequest("All interfaces must be in the same VPC")
	}

	return nil
}

func (i *instanceSpec) checkEphemeral() error {
	var n, vague int

	for _, e := range i.ips {
		if e.ephemeral {
			n++

			if e.pool == (poolSelector{}) {
				vague++
			}
		}
	}

	switch {
	case n > maxEphemeral:
		return invalidRequest("An instance may not have more than %d ephemeral IP addresses", maxEphemeral)
	case n > 1 && vague > 0:
		return invalidRequest("ephemeral IP addresses must each name a pool or an IP version when there are two")
	}

	return nil
}
