package plan

import (
	"strings"
	"testing"
	"time"
)

func TestTheDefaultRack(t *testing.T) {
	for _, n := range []int{1, 4, MaxSleds} {
		d, err := Default(n)
		if err != nil {
			t.Fatal(err)
		}

		if err := d.Check(); err != nil || len(d.Sleds) != n {
			t.Errorf("%d sleds, %v", len(d.Sleds), err)
		}

		if got := d.AddressPools[0].Ranges[0].Size("v4"); got != 4000 {
			t.Errorf("%d addresses", got)
		}
	}

	for _, n := range []int{0, MaxSleds + 1} {
		if _, err := Default(n); err == nil {
			t.Errorf("a rack of %d sleds was made", n)
		}
	}
}

func TestWhenAPoolReports(t *testing.T) {
	for reports, want := range map[string]time.Duration{"": 0, "5s": 5 * time.Second, "1m30s": 90 * time.Second} {
		if got, ever := (Disk{Reports: reports}).ReportsAfter(); got != want || !ever {
			t.Errorf("%q: %s, %v", reports, got, ever)
		}
	}

	if _, ever := (Disk{Reports: Never}).ReportsAfter(); ever {
		t.Error("never came")
	}

	d := small(t)
	d.Sleds[0].Disks[0].Reports = Never

	if once := d.AtOnce(); once.Sleds[0].Disks[0].Reports != "" || d.Sleds[0].Disks[0].Reports != Never {
		t.Error("AtOnce left a delay, or changed what it was made from")
	}
}

// All mistakes are told at once, each with its place.
func TestMistakesInADescription(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Description)
		want   []string
	}{
		"nothing": {func(d *Description) { *d = Description{} }, []string{
			"name is missing", "subnet:", "dns_zone:", "certificates:", "services.internal_dns is 0", "services.metrics is 0", "sleds: there are 0",
		}},
		"subnet": {func(d *Description) { d.Subnet = "fd00::/48" }, []string{"subnet: fd00::/48 is no /56"}},
		"zone":   {func(d *Description) { d.DNSZone = "Rack" }, []string{`dns_zone: "Rack"`}},
		"pools": {func(d *Description) {
			d.AddressPools = []AddressPool{
				{Name: "a", Version: "v4", Ranges: []Range{{"10.0.0.2", "10.0.0.1"}}},
				{Name: "a", Version: "v5", Ranges: nil},
				{Name: "b", Version: "v6", Ranges: []Range{{"10.0.0.1", "10.0.0.2"}}},
				{Name: "c", Version: "v4", Ranges: []Range{{"10.0.0.0", "10.255.255.255"}}},
			}
		}, []string{
			"address_pools[0].ranges[0]: 10.0.0.2 comes after 10.0.0.1", "address_pools[1].name", "address_pools[1].version",
			"address_pools[1].ranges", "is no range of v6 addresses", "address_pools[3] has more than 65536",
		}},
		"sleds": {func(d *Description) {
			d.Sleds[1].Serial = d.Sleds[0].Serial
			d.Sleds[0].CPUs = 0
			d.Sleds[0].Platform = "pdp11"
			d.Sleds[0].Disks = d.Sleds[0].Disks[:2]
			d.Sleds[1].Disks[0].Size = 0
			d.Sleds[1].Disks[1].Reports = "soon"
			d.Sleds[1].Disks[2].Reports = "-1s"
		}, []string{
			"sleds[1] (S1).serial", "cpus and memory", `platform is "pdp11"`, "sleds[0] (S1).disks: there are 2, a sled needs 3",
			"disks[0].size is 0", `reports is "soon"`, `reports is "-1s"`,
		}},
		"external": {func(d *Description) {
			d.ExternalAddresses.API = []string{"nowhere", "198.51.100.1", "198.51.100.1"}
			d.ExternalAddresses.DNS = nil
		}, []string{"external_addresses.api[0]", "external_addresses.api[2]: 198.51.100.1 is there twice", "external_addresses.dns has 0 addresses for 1"}},
		"counts": {func(d *Description) { d.Services.Database = 10 }, []string{"services.database is 10: it must be 1 to 9"}},
	} {
		d := small(t)
		tc.change(&d)

		err := d.Check()
		if err == nil {
			t.Errorf("%s: nothing is wrong", name)

			continue
		}

		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v\ndoes not say %q", name, err, w)
			}
		}
	}
}

func TestADescriptionIsReadStrictly(t *testing.T) {
	for raw, want := range map[string]string{
		"name: a\nslots: 3\n":        "slots",
		"name: [":                    "reading the rack description",
		"":                           "reading the rack description",
		"{\"name\": \"a\"}\n---\n{}": "more than one document",
	} {
		if _, err := Parse([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
	}
}
