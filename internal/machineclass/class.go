// Package machineclass is the class of machine that a user asks Omni for: what
// stands in a machine class' provider data.
//
// One table (fields.go) says which keys there are, what they mean and what
// limits they have. The JSON schema that Omni shows as a form and checks
// classes against comes from it, and so does the check made here. Omni checks
// a class only when its text changes, and never a request made by hand, so
// everything is checked here again.
//
// Keys once published stay known for ever, those of the first generation of
// the published provider (vcpus, disk_size, vpc, subnet) included.
package machineclass

import (
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// GiB is the unit of all sizes in a class, in bytes.
const GiB = 1 << 30

// Class is a checked class with all defaults filled in. Sizes are whole GiB.
type Class struct {
	Project            string             `yaml:"project"` // name or ID
	CPUs               int                `yaml:"cpus"`
	Memory             int                `yaml:"memory"`         // GiB
	BootDiskSize       int                `yaml:"boot_disk_size"` // GiB
	Disks              []Disk             `yaml:"disks"`          // without the boot disk
	NetworkInterfaces  []NetworkInterface `yaml:"network_interfaces"`
	AutoRestartPolicy  string             `yaml:"auto_restart_policy"`  // "never" or "best_effort"
	CPUPlatform        string             `yaml:"cpu_platform"`         // in the API's spelling
	AntiAffinityGroups []string           `yaml:"anti_affinity_groups"` // names or IDs
	EnableJumboFrames  bool               `yaml:"enable_jumbo_frames"`
}

// Disk is a disk beside the boot disk.
type Disk struct {
	Type string `yaml:"type"` // DiskDistributed or DiskLocal
	Size int    `yaml:"size"` // GiB
}

// NetworkInterface is a network interface; the first of a class is the
// primary one.
type NetworkInterface struct {
	IPConfig   string `yaml:"ip_config"` // IPv4, IPv6 or DualStack
	SubnetName string `yaml:"subnet_name"`
	VPCName    string `yaml:"vpc_name"`
}

// The values of the fields that have a fixed set of them.
const (
	DiskDistributed = "distributed" // replicated over sleds
	DiskLocal       = "local"       // on the instance's own sled

	IPv4      = "v4"
	IPv6      = "v6"
	DualStack = "dual_stack"

	RestartNever      = "never"
	RestartBestEffort = "best_effort"

	AMDMilan   = "amd_milan"
	AMDTurin   = "amd_turin"
	AMDTurinV2 = "amd_turin_v2"

	// amdTurinV2Published is how the published provider spells AMDTurinV2.
	amdTurinV2Published = "amd_turinv2"
)

// Mistakes is the error for a class that is wrong: all that a user must mend,
// each as "field path: value and limit", on one line.
type Mistakes []string

// Error returns the mistakes on one line.
func (m Mistakes) Error() string { return strings.Join(m, "; ") }

// Parse reads a class from YAML (or JSON) text, checks it and fills in the
// defaults. The error is of type Mistakes and names them all.
func Parse(text string) (Class, error) {
	root, err := document(text)
	if err != nil {
		return Class{}, Mistakes{err.Error()}
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
	c.CPUs = orDefault(c.CPUs, 1)
	c.Memory = orDefault(c.Memory, 4)
	c.BootDiskSize = orDefault(c.BootDiskSize, 10)
	c.AutoRestartPolicy = orDefault(c.AutoRestartPolicy, RestartBestEffort)
	c.CPUPlatform = orDefault(c.CPUPlatform, AMDMilan)

	if c.CPUPlatform == amdTurinV2Published {
		c.CPUPlatform = AMDTurinV2
	}

	if len(c.NetworkInterfaces) == 0 {
		c.NetworkInterfaces = make([]NetworkInterface, 1)
	}

	for i := range c.NetworkInterfaces {
		n := &c.NetworkInterfaces[i]
		n.IPConfig = orDefault(n.IPConfig, IPv4)
		n.SubnetName = orDefault(n.SubnetName, "default")
		n.VPCName = orDefault(n.VPCName, "default")
	}

	for i := range c.Disks {
		c.Disks[i].Type = orDefault(c.Disks[i].Type, DiskDistributed)
	}
}

func orDefault[T comparable](value, otherwise T) T {
	var unset T

	if value == unset {
		return otherwise
	}

	return value
}
