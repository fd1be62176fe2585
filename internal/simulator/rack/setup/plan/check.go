package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/addresses"
)

// maxPoolAddresses bounds a pool: each address takes memory.
const maxPoolAddresses = 1 << 16

var (
	legalSerial = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
	legalZone   = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`)
	platforms   = []string{"", "amd_milan", "amd_turin", "amd_turin_v2"}
)

// mistakes collects all that is wrong with a description, each with its place.
type mistakes []error

func (m *mistakes) add(format string, args ...any) { *m = append(*m, fmt.Errorf(format, args...)) }

// Check tells all mistakes of a description at once.
func (d Description) Check() error {
	var m mistakes

	if d.Name == "" {
		m.add("name is missing")
	}

	if subnet, err := netip.ParsePrefix(d.Subnet); err != nil {
		m.add("subnet: %w", err)
	} else if err := addresses.CheckRack(subnet); err != nil {
		m.add("subnet: %w", err)
	}

	if !legalZone.MatchString(d.DNSZone) {
		m.add("dns_zone: %q is no DNS zone in lower case", d.DNSZone)
	}

	if len(d.Certificates) == 0 {
		m.add("certificates: the API needs at least one")
	}

	d.checkServices(&m)
	d.checkAddressPools(&m)
	d.checkSleds(&m)

	if len(m) > 0 {
		return fmt.Errorf("the rack description is wrong: %w", errors.Join(m...))
	}

	return nil
}

func (d Description) checkServices(m *mistakes) {
	c := d.Services

	for _, s := range []struct {
		name       string
		count, max int
	}{
		{"internal_dns", c.InternalDNS, 5}, {"external_dns", c.ExternalDNS, 5}, {"database", c.Database, 9},
		{"control_plane", c.ControlPlane, 9}, {"pantry", c.Pantry, 9}, {"metrics", c.Metrics, 9},
	} {
		if s.count < 1 || s.count > s.max {
			m.add("services.%s is %d: it must be 1 to %d", s.name, s.count, s.max)
		}
	}

	checkExternal(m, "api", d.ExternalAddresses.API, c.ControlPlane)
	checkExternal(m, "dns", d.ExternalAddresses.DNS, c.ExternalDNS)
}

func checkExternal(m *mistakes, name string, list []string, need int) {
	for i, a := range list {
		if _, err := netip.ParseAddr(a); err != nil {
			m.add("external_addresses.%s[%d]: %w", name, i, err)
		} else if slices.Index(list, a) != i {
			m.add("external_addresses.%s[%d]: %s is there twice", name, i, a)
		}
	}

	if len(list) < need {
		m.add("external_addresses.%s has %d addresses for %d services", name, len(list), need)
	}
}

func (d Description) checkAddressPools(m *mistakes) {
	names := map[string]bool{}

	for i, p := range d.AddressPools {
		where := fmt.Sprintf("address_pools[%d]", i)

		if p.Name == "" || names[p.Name] {
			m.add("%s.name: %q is missing or there twice", where, p.Name)
		}

		names[p.Name] = true

		if p.Version != "v4" && p.Version != "v6" {
			m.add("%s.version is %q: it must be v4 or v6", where, p.Version)
		}

		if len(p.Ranges) == 0 {
			m.add("%s.ranges: a pool needs at least one", where)
		}

		left := maxPoolAddresses

		for j, r := range p.Ranges {
			n, err := r.size(p.Version)
			if err != nil {
				m.add("%s.ranges[%d]: %w", where, j, err)
			}

			left -= n
		}

		if left < 0 {
			m.add("%s has more than %d addresses", where, maxPoolAddresses)
		}
	}
}

// size counts the addresses, up to one more than a pool may have.
func (r Range) size(version string) (int, error) {
	first, err := netip.ParseAddr(r.First)
	if err != nil {
		return 0, err
	}

	last, err := netip.ParseAddr(r.Last)
	if err != nil {
		return 0, err
	}

	if first.Is4() != (version == "v4") || last.Is4() != first.Is4() {
		return 0, fmt.Errorf("%s to %s is no range of %s addresses", r.First, r.Last, version)
	}

	if last.Less(first) {
		return 0, fmt.Errorf("%s comes after %s", r.First, r.Last)
	}

	n := 1
	for ; first != last && n <= maxPoolAddresses; first = first.Next() {
		n++
	}

	return n, nil
}

// Size is the number of addresses of a range that has been checked.
func (r Range) Size(version string) int {
	n, _ := r.size(version) // Check has told a mistake

	return n
}

func (d Description) checkSleds(m *mistakes) {
	if n := len(d.Sleds); n < 1 || n > MaxSleds {
		m.add("sleds: there are %d, a rack has 1 to %d", n, MaxSleds)
	}

	serials, disks := map[string]bool{}, map[string]bool{}

	for i, s := range d.Sleds {
		where := fmt.Sprintf("sleds[%d]", i)
		if s.Serial != "" {
			where += " (" + s.Serial + ")"
		}

		checkSerial(m, where, s.Serial, serials)

		if s.CPUs < 1 || s.Memory < 1 {
			m.add("%s: cpus and memory must be above 0", where)
		}

		if !slices.Contains(platforms, s.Platform) {
			m.add("%s.platform is %q: it must be one of %q", where, s.Platform, platforms[1:])
		}

		if len(s.Disks) < MinPools {
			m.add("%s.disks: there are %d, a sled needs %d storage pools", where, len(s.Disks), MinPools)
		}

		for j, disk := range s.Disks {
			checkSerial(m, fmt.Sprintf("%s.disks[%d]", where, j), disk.Serial, disks)
			disk.check(m, fmt.Sprintf("%s.disks[%d]", where, j))
		}
	}
}

func (d Disk) check(m *mistakes, where string) {
	if d.Size < 1 {
		m.add("%s.size is %d GiB: it must be above 0", where, d.Size)
	}

	if d.Reports == "" || d.Reports == Never {
		return
	}

	if after, err := time.ParseDuration(d.Reports); err != nil || after < 0 {
		m.add("%s.reports is %q: it must be empty, %s, or a duration such as 5s", where, d.Reports, Never)
	}
}

func checkSerial(m *mistakes, where, serial string, seen map[string]bool) {
	// They are written in either case, and mean the same.
	key := strings.ToLower(serial)

	if !legalSerial.MatchString(serial) || seen[key] {
		m.add("%s.serial: %q is missing, no serial number, or there twice", where, serial)
	}

	seen[key] = true
}
