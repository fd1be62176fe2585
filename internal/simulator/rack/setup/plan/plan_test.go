package plan

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/setup/store"
)

var update = flag.Bool("update", false, "write the golden files")

// counted makes IDs that are the same in every run.
func counted() func() string {
	n := 0

	return func() string {
		n++

		return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	}
}

func allReported(d Description) Reported {
	out := Reported{}

	for _, s := range d.Sleds {
		for _, disk := range s.Disks {
			out[s.Serial] = append(out[s.Serial], disk.Serial)
		}
	}

	return out
}

func small(t *testing.T) Description {
	t.Helper()

	raw, err := os.ReadFile("testdata/rack.yaml")
	if err != nil {
		t.Fatal(err)
	}

	d, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}

	return d
}

func plans(t *testing.T, d Description) (Sleds, Services) {
	t.Helper()

	id := counted()

	sleds, err := MakeSleds(d, id)
	if err != nil {
		t.Fatal(err)
	}

	services, err := MakeServices(d, sleds, allReported(d), id)
	if err != nil {
		t.Fatal(err)
	}

	return sleds, services
}

// The stored form of both plans is a promise: a rack that was set up by an
// earlier program goes on under a later one.
func TestStoredPlansAreThoseOfTheGoldenFiles(t *testing.T) {
	d := small(t)
	sleds, services := plans(t, d)

	for name, p := range map[string]any{SledsName: sleds, ServicesName: services} {
		raw, err := Encode(p)
		if err != nil {
			t.Fatal(err)
		}

		path := filepath.Join("testdata", name+".golden.json")
		if *update {
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if !bytes.Equal(raw, golden) {
			t.Errorf("%s is not that of the golden file:\n%s", name, raw)
		}

		kept := &store.Memory{}
		if err := kept.Save(name, golden); err != nil {
			t.Fatal(err)
		}

		var (
			back  any
			found bool
		)

		if name == SledsName {
			back, found, err = LoadSleds(kept, d)
		} else {
			back, found, err = LoadServices(kept, sleds)
		}

		if again, encErr := Encode(back); err != nil || encErr != nil || !found || !bytes.Equal(again, golden) {
			t.Errorf("%s does not come back as it was: %v, %v, %v\n%s", name, found, err, encErr, again)
		}
	}
}

// A stored plan that can not be gone by is told, and never replaced in silence.
func TestAStoredPlanThatCanNotBeUsed(t *testing.T) {
	d := small(t)
	sleds, services := plans(t, d)

	encode := func(p any) string {
		raw, err := Encode(p)
		if err != nil {
			t.Fatal(err)
		}

		return string(raw)
	}

	shared := sleds
	shared.Sleds = append([]PlannedSled{}, sleds.Sleds...)
	shared.Sleds[1].ID = shared.Sleds[0].ID

	for _, tc := range []struct{ name, stored, want string }{
		{SledsName, `{"format": 1, "rack`, "unexpected end of JSON"},
		{SledsName, `{"format": 2}`, "format is 2, and this program knows 1"},
		{SledsName, strings.Replace(encode(sleds), `"rack_id"`, `"rack"`, 1), `unknown field "rack"`},
		{SledsName, encode(shared), "of sled"},
		{SledsName, "", "unexpected end of JSON"},
		{ServicesName, strings.Replace(encode(services), services.RackID, uuid.NewString(), 1), "of rack"},
		{ServicesName, strings.Replace(encode(services), sleds.Sleds[0].ID, uuid.NewString(), 1), "not in the sled plan"},
		{ServicesName, strings.Replace(encode(services), services.DNS[0].Dataset, uuid.NewString(), 1), "not in the plan"},
	} {
		s := &store.Memory{}
		if err := s.Save(tc.name, []byte(tc.stored)); err != nil {
			t.Fatal(err)
		}

		var err error
		if tc.name == SledsName {
			_, _, err = LoadSleds(s, d)
		} else {
			_, _, err = LoadServices(s, sleds)
		}

		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "can not be used") {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// A plan is of one rack. When its pools report is no part of what the rack is.
func TestAPlanOfAnotherRackIsToldWithWhatDiffers(t *testing.T) {
	d := small(t)
	sleds, _ := plans(t, d)
	s := &store.Memory{}

	if err := Save(s, SledsName, sleds); err != nil {
		t.Fatal(err)
	}

	late := small(t)
	late.Sleds[0].Disks[0].Reports = Never

	if _, found, err := LoadSleds(s, late); !found || err != nil {
		t.Errorf("with a pool that comes late: %v, %v", found, err)
	}

	other := small(t)
	other.Sleds[1].CPUs++
	other.Services.Pantry++

	if _, _, err := LoadSleds(s, other); err == nil || !strings.Contains(err.Error(), "differs in services, sleds") {
		t.Errorf("of another rack: %v", err)
	}
}

// Invariant: whatever rack is described, each service has an address of its own
// in its sled's subnet, services of a kind are spread evenly, no pool has two
// datasets of a kind, and each pool has a storage dataset.
func TestPlansKeepTheirRules(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d, err := Default(rapid.IntRange(1, MaxSleds).Draw(r, "sleds"))
		if err != nil {
			r.Fatal(err)
		}

		d.Services = Counts{
			InternalDNS: rapid.IntRange(1, 3).Draw(r, "internal"), ExternalDNS: rapid.IntRange(1, 2).Draw(r, "external"),
			Database: rapid.IntRange(1, 3).Draw(r, "databases"), ControlPlane: rapid.IntRange(1, 3).Draw(r, "control planes"),
			Pantry: rapid.IntRange(1, 9).Draw(r, "pantries"), Metrics: rapid.IntRange(1, 3).Draw(r, "metrics"),
		}

		reported := allReported(d)
		for serial, disks := range reported {
			reported[serial] = disks[:rapid.IntRange(MinPools, len(disks)).Draw(r, serial)]
		}

		sleds, err := MakeSleds(d, uuid.NewString)
		if err != nil {
			r.Fatal(err)
		}

		services, err := MakeServices(d, sleds, reported, uuid.NewString)
		if err != nil {
			r.Fatal(err)
		}

		if err := services.check(sleds); err != nil {
			r.Fatal(err)
		}

		checkAddresses(r, sleds, services)
		checkSpread(r, sleds, services, reported)
	})
}

func checkAddresses(r *rapid.T, sleds Sleds, services Services) {
	subnets, used := map[string]netip.Prefix{}, map[netip.Addr]bool{}
	for _, s := range sleds.Sleds {
		subnets[s.ID] = s.Subnet
	}

	claim := func(id, sled string, a netip.Addr, inSled bool) {
		if used[a] || subnets[sled].Contains(a) != inSled {
			r.Fatalf("%s has address %s on sled %s (%s)", id, a, sled, subnets[sled])
		}

		used[a] = true
	}

	for _, x := range services.DNS {
		claim(x.ID, x.SledID, x.Address, x.Role == DNSExternal)
	}

	for _, x := range services.Services {
		claim(x.ID, x.SledID, x.Address.Addr(), true)
	}

	for _, x := range services.Datasets {
		if x.Kind == StorageDataset {
			claim(x.ID, x.SledID, x.Address.Addr(), true)
		}
	}
}

func checkSpread(r *rapid.T, sleds Sleds, services Services, reported Reported) {
	perSled, inPool := map[string]map[string]int{}, map[string]bool{}

	for _, x := range services.Services {
		if perSled[string(x.Kind)] == nil {
			perSled[string(x.Kind)] = map[string]int{}
		}

		perSled[string(x.Kind)][x.SledID]++
	}

	for kind, on := range perSled {
		least, most := 1<<30, 0

		for _, s := range sleds.Sleds {
			least, most = min(least, on[s.ID]), max(most, on[s.ID])
		}

		if most > least+1 {
			r.Fatalf("%s runs %d times on one sled and %d times on another", kind, most, least)
		}
	}

	storage := 0

	for _, x := range services.Datasets {
		key := x.Disk + " " + x.Kind
		if inPool[key] {
			r.Fatalf("pool %s has two datasets of kind %s", x.Disk, x.Kind)
		}

		inPool[key] = true

		if x.Kind == StorageDataset {
			storage++
		}
	}

	pools := 0
	for _, disks := range reported {
		pools += len(disks)
	}

	if storage != pools {
		r.Fatalf("%d storage datasets in %d pools", storage, pools)
	}
}

func TestAPlanThatDoesNotFitIsRefused(t *testing.T) {
	d := small(t)

	sleds, err := MakeSleds(d, uuid.NewString)
	if err != nil {
		t.Fatal(err)
	}

	few := allReported(d)
	few["S2"] = few["S2"][:2]

	if _, err := MakeServices(d, sleds, few, uuid.NewString); err == nil || !strings.Contains(err.Error(), "sled S2 has 2 of 3 storage pools") {
		t.Errorf("two pools: %v", err)
	}

	d.Services.Database = 7
	if _, err := MakeServices(d, sleds, allReported(d), uuid.NewString); err == nil || !strings.Contains(err.Error(), "no storage pool is left for another database") {
		t.Errorf("seven databases in six pools: %v", err)
	}
}
