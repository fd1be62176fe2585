// Package machineclass is the class of machine that a user asks Omni for: what
// stands in a machine class' provider data.
//
// One table (fields.go and the files beside it) says which keys there are, what
// they mean and what limits they have. The JSON schema that Omni shows as a form
// and checks classes against comes from it, and so do the check made here, the
// example and the reference for users. Omni checks a class only when its text
// changes, and never a request made by hand, so everything is checked here again.
//
//	text ── document ──> YAML nodes ── checker: keys, types, limits of each field
//	                         │
//	                         └─ decode ─> Class ── old keys ── defaults ── rules: what fields must agree on
//
// A Class that Parse returns breaks no limit that can be known without asking
// the rack. NotYet names what it asks for that this version does not carry out.
//
// Keys once published stay known for ever, those of the first generation of
// the published provider (vcpus, disk_size, vpc, subnet) included.
package machineclass

import (
	"errors"
	"io"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Class is a checked class with all defaults filled in. Sizes are whole GiB.
type Class struct {
	Project            string       `yaml:"project"`     // name or ID
	Description        string       `yaml:"description"` // one line for people, or ""
	CPUs               int          `yaml:"cpus"`
	Memory             int          `yaml:"memory"`         // GiB
	BootDiskSize       int          `yaml:"boot_disk_size"` // GiB
	Disks              []Disk       `yaml:"disks"`          // without the boot disk
	NICs               []NIC        `yaml:"network_interfaces"`
	ExternalIPs        []ExternalIP `yaml:"external_ips"`
	AntiAffinityGroups []string     `yaml:"anti_affinity_groups"` // names or IDs
	SetGroup           string       `yaml:"machine_set_group"`    // GroupNone, GroupAllow or GroupFail
	CPUPlatform        string       `yaml:"cpu_platform"`         // in the API's spelling
	AutoRestartPolicy  string       `yaml:"auto_restart_policy"`  // RestartNever or RestartBestEffort
	OnStopped          string       `yaml:"on_stopped"`           // StoppedLeave or StoppedStart
	EnableJumboFrames  bool         `yaml:"enable_jumbo_frames"`
	Hostname           string       `yaml:"hostname"` // HostnamePlatform or HostnamePinned
	Topology           Topology     `yaml:"topology"`
	NodeLabels         []string     `yaml:"node_labels"` // key=value; Labels has those of the topology too
	Extensions         []string     `yaml:"extensions"`  // vendor/name
	KernelArgs         []string     `yaml:"kernel_args"`
	ImageScope         string       `yaml:"image_scope"` // ScopeAuto, ScopeSilo or ScopeProject
	TrustedCAs         string       `yaml:"trusted_cas"` // PEM certificates and nothing else, or ""
}

// Disk is a disk beside the boot disk.
type Disk struct {
	Type string `yaml:"type"` // DiskDistributed or DiskLocal
	Size int    `yaml:"size"` // GiB
	// Name begins the disk's name in the rack and its serial number in the
	// guest; "data" and its index in the list where the class gives none.
	Name string `yaml:"name"`
}

// NIC is a network interface; the first of a class is the primary one.
type NIC struct {
	IPConfig   string `yaml:"ip_config"` // IPv4, IPv6 or DualStack
	VPCName    string `yaml:"vpc_name"`
	SubnetName string `yaml:"subnet_name"`
	// Addresses are those that the class' machines share, each machine one of
	// each IP version in it. For a version without any the rack chooses.
	Addresses  []netip.Addr   `yaml:"addresses"`
	TransitIPs []netip.Prefix `yaml:"transit_ips"`
}

// ExternalIP is an address that a machine is reached at from outside.
type ExternalIP struct {
	Type string `yaml:"type"` // Ephemeral or Floating
	// IPVersion is IPv4 or IPv6, or "" for that of Pool or of FloatingIPs. With
	// a pool it must be that of the pool.
	IPVersion string `yaml:"ip_version"`
	Pool      string `yaml:"pool"` // name or ID, "" for the silo's default one of the version
	// FloatingIPs are names or IDs of those that the class' machines share, each
	// machine one. Without any, a floating address is made for the machine.
	FloatingIPs []string `yaml:"floating_ips"`
}

// Topology says where a node is, as node labels. Empty parts give no label.
type Topology struct {
	Region       string `yaml:"region"`
	Zone         string `yaml:"zone"`
	InstanceType string `yaml:"instance_type"`
}

// The values of the fields that have a fixed set of them.
const (
	DiskDistributed = "distributed" // replicated over sleds
	DiskLocal       = "local"       // on the instance's own sled

	IPv4      = "v4"
	IPv6      = "v6"
	DualStack = "dual_stack"

	Ephemeral = "ephemeral" // gone with the machine
	Floating  = "floating"

	GroupNone  = "none"
	GroupAllow = "allow" // machines of a set share a sled when there is no other way
	GroupFail  = "fail"  // rather a machine that does not start

	RestartNever      = "never"
	RestartBestEffort = "best_effort"

	StoppedLeave = "leave"
	StoppedStart = "start"

	HostnamePlatform = "platform" // the rack's DHCP gives the instance's name
	HostnamePinned   = "pinned"   // a config patch does

	ScopeAuto    = "auto" // silo if the token may, else project
	ScopeSilo    = "silo"
	ScopeProject = "project"

	AMDMilan   = "amd_milan"
	AMDTurin   = "amd_turin"
	AMDTurinV2 = "amd_turin_v2"

	// amdTurinV2Published is how the published provider spells AMDTurinV2.
	amdTurinV2Published = "amd_turinv2"
)

// Parse reads a class from YAML (or JSON) text, checks it and fills in the
// defaults. The error is of type Mistakes and names them all.
func Parse(text string) (Class, error) {
	root, err := document(text)
	if err != nil {
		return Class{}, Mistakes{{Text: err.Error()}}
	}

	var c checker

	c.object("", append(fields(), oldFields()...), root)

	var (
		class Class
		old   oldClass
	)

	// Decoding goes on past values of wrong types, which the checker has
	// named better; only an error that it did not foresee counts.
	if err = errors.Join(root.Decode(&class), root.Decode(&old)); err != nil && len(c.mistakes) == 0 {
		c.add("", "%s", oneLine(err))
	}

	old.translate(&c, &class)
	class.fill()
	class.rules(&c)

	if len(c.mistakes) > 0 {
		return Class{}, c.mistakes
	}

	return class, nil
}

// document returns the mapping that the text consists of, empty for no text.
func document(text string) (*yaml.Node, error) {
	var node, second yaml.Node

	decoder := yaml.NewDecoder(strings.NewReader(text))

	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, nil
	case err != nil:
		return nil, errors.New("not YAML: " + oneLine(err))
	}

	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document")
	}

	root := resolve(node.Content[0])

	switch {
	case root.Kind == yaml.MappingNode:
		return root, nil
	case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}, nil
	default:
		return nil, errors.New("the class is " + describe(root) + ", must be keys with values")
	}
}

func oneLine(err error) string {
	return strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
}

// fill puts the defaults where the class says nothing. Zero is no legal value
// of any field, so it means that.
func (c *Class) fill() {
	c.CPUs = orDefault(c.CPUs, defaultCPUs)
	c.Memory = orDefault(c.Memory, defaultMemory)
	c.BootDiskSize = orDefault(c.BootDiskSize, defaultBootDisk)
	c.SetGroup = orDefault(c.SetGroup, GroupNone)
	c.AutoRestartPolicy = orDefault(c.AutoRestartPolicy, RestartBestEffort)
	c.OnStopped = orDefault(c.OnStopped, StoppedLeave)
	c.Hostname = orDefault(c.Hostname, HostnamePlatform)
	c.ImageScope = orDefault(c.ImageScope, ScopeAuto)
	c.CPUPlatform = orDefault(c.CPUPlatform, AMDMilan)

	if c.CPUPlatform == amdTurinV2Published {
		c.CPUPlatform = AMDTurinV2
	}

	// What can not be read the checker has said already.
	if certificates, err := readCertificates(c.TrustedCAs); err == nil {
		c.TrustedCAs = certificates.PEM()
	}

	c.fillLists()
}

func (c *Class) fillLists() {
	if len(c.NICs) == 0 {
		c.NICs = make([]NIC, 1)
	}

	for i := range c.NICs {
		n := &c.NICs[i]
		n.IPConfig = orDefault(n.IPConfig, IPv4)
		n.SubnetName = orDefault(n.SubnetName, defaultName)
		n.VPCName = orDefault(n.VPCName, defaultName)
	}

	for i := range c.ExternalIPs {
		e := &c.ExternalIPs[i]
		e.Type = orDefault(e.Type, Ephemeral)

		if e.Pool == "" && len(e.FloatingIPs) == 0 {
			e.IPVersion = orDefault(e.IPVersion, IPv4)
		}
	}

	for i := range c.Disks {
		c.Disks[i].Type = orDefault(c.Disks[i].Type, DiskDistributed)
		c.Disks[i].Name = orDefault(c.Disks[i].Name, defaultDiskName(i))
	}
}

func orDefault[T comparable](value, otherwise T) T {
	var unset T

	if value == unset {
		return otherwise
	}

	return value
}
