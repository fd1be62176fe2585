// Package plan holds what a rack is to become: the description that its owner
// writes, and the two plans that its setup service makes of it. A plan is made
// once, with IDs that belong to nothing else, and stored before anything of it
// is carried out; from then on it is loaded, and never made anew.
package plan

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"time"

	"go.yaml.in/yaml/v4"
)

// MinPools is how many storage pools a sled must report before a rack is set up.
const MinPools = 3

// MaxSleds is what one rack holds.
const MaxSleds = 32

// Description is a rack as its owner describes it, in YAML or JSON.
type Description struct {
	Name string `json:"name" yaml:"name"`
	// Subnet is the underlay's /56, in fd00::/8.
	Subnet string `json:"subnet" yaml:"subnet"`
	// DNSZone is the zone that the rack serves to its users.
	DNSZone           string            `json:"dns_zone" yaml:"dns_zone"`
	ExternalAddresses ExternalAddresses `json:"external_addresses" yaml:"external_addresses"`
	// Certificates are the names of those that the API is served with.
	Certificates []string      `json:"certificates" yaml:"certificates"`
	AddressPools []AddressPool `json:"address_pools" yaml:"address_pools"`
	Sleds        []Sled        `json:"sleds" yaml:"sleds"`
	Services     Counts        `json:"services" yaml:"services"`
}

// ExternalAddresses are those that the rack's own services have outside.
type ExternalAddresses struct {
	API []string `json:"api" yaml:"api"` // one for each control plane
	DNS []string `json:"dns" yaml:"dns"` // one for each external DNS server
}

// AddressPool is a pool that instances' external addresses come from.
type AddressPool struct {
	Name    string  `json:"name" yaml:"name"`
	Version string  `json:"version" yaml:"version"` // v4 or v6
	Default bool    `json:"default" yaml:"default"`
	Ranges  []Range `json:"ranges" yaml:"ranges"`
}

// Range is from the first to the last address, both included.
type Range struct {
	First string `json:"first" yaml:"first"`
	Last  string `json:"last" yaml:"last"`
}

// Sled is a server.
type Sled struct {
	Serial   string `json:"serial" yaml:"serial"`
	Platform string `json:"platform" yaml:"platform"` // amd_milan if empty
	CPUs     int    `json:"cpus" yaml:"cpus"`
	Memory   int64  `json:"memory" yaml:"memory"` // GiB
	Disks    []Disk `json:"disks" yaml:"disks"`
}

// Disk of a sled, which becomes a storage pool.
type Disk struct {
	Serial string `json:"serial" yaml:"serial"`
	Size   int64  `json:"size" yaml:"size"` // GiB
	// Reports is when the sled reports the pool: at once if empty, after a
	// duration such as 5s, or "never", which is until it is told to.
	Reports string `json:"reports,omitempty" yaml:"reports"`
}

// Never is the Reports of a disk that does not come up by itself.
const Never = "never"

// ReportsAfter is the delay before the pool is reported; false for never.
func (d Disk) ReportsAfter() (time.Duration, bool) {
	if d.Reports == Never {
		return 0, false
	}

	// Check has seen to it that it is a duration, or empty, which is at once.
	after, _ := time.ParseDuration(d.Reports)

	return after, true
}

// Counts is how many of each service a rack runs.
type Counts struct {
	InternalDNS  int `json:"internal_dns" yaml:"internal_dns"`
	ExternalDNS  int `json:"external_dns" yaml:"external_dns"`
	Database     int `json:"database" yaml:"database"`
	ControlPlane int `json:"control_plane" yaml:"control_plane"`
	Pantry       int `json:"pantry" yaml:"pantry"`
	Metrics      int `json:"metrics" yaml:"metrics"`
}

// Parse reads one description and checks it. Unknown keys are mistakes.
func Parse(raw []byte) (Description, error) {
	var d Description

	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)

	if err := decoder.Decode(&d); err != nil {
		return Description{}, fmt.Errorf("reading the rack description: %w", err)
	}

	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Description{}, errors.New("reading the rack description: there is more than one document")
	}

	if err := d.Check(); err != nil {
		return Description{}, err
	}

	return d, nil
}

//go:embed default.yaml
var defaultDescription []byte

// Default is a rack of n sleds, 1 to 32, of 128 threads and 1 TiB each.
func Default(n int) (Description, error) {
	if n < 1 || n > MaxSleds {
		return Description{}, fmt.Errorf("a rack has 1 to %d sleds, not %d", MaxSleds, n)
	}

	d, err := Parse(defaultDescription)
	if err != nil {
		return Description{}, err
	}

	like := d.Sleds[0]
	d.Sleds = nil

	for i := range n {
		sled := like
		sled.Serial = fmt.Sprintf("BRM4222%04d", i+1)
		sled.Disks = nil

		for _, disk := range like.Disks {
			disk.Serial = fmt.Sprintf("%s-%s", sled.Serial, disk.Serial)
			sled.Disks = append(sled.Disks, disk)
		}

		d.Sleds = append(d.Sleds, sled)
	}

	return d, nil
}

// AtOnce is the same rack with all pools there from the start.
func (d Description) AtOnce() Description {
	sleds := make([]Sled, len(d.Sleds))

	for i, s := range d.Sleds {
		disks := make([]Disk, len(s.Disks))

		for j, disk := range s.Disks {
			disk.Reports = ""
			disks[j] = disk
		}

		s.Disks = disks
		sleds[i] = s
	}

	d.Sleds = sleds

	return d
}
