package naming_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// rackName is the rack's own rule, written down a second time on purpose.
var rackName = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

func checkLegal(t interface{ Fatalf(string, ...any) }, name string) {
	_, err := uuid.Parse(name)
	if len(name) < 1 || len(name) > 63 || !rackName.MatchString(name) || err == nil {
		t.Fatalf("the rack refuses the name %q", name)
	}
}

// requestIDs draws what Omni makes and what people can make in it.
func requestIDs() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[a-z][a-z0-9-]{0,20}-(workers|control-planes)-[bcdfghjklmnpqrstvwxz2456789]{6}`),
		rapid.StringMatching(`[a-z][a-z0-9-]{55,61}[a-z0-9]`),
		rapid.StringMatching(`[A-Za-z0-9._-]{1,200}`),
		rapid.StringMatching(`[a-f0-9]{32}`),
		rapid.StringMatching(`[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}`),
		rapid.StringMatching(`[a-z][a-z0-9-]{0,30}-x[a-z2-7]{16}`),
		rapid.StringN(1, 200, -1),
	)
}

func TestNamesAreLegalAndStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := requestIDs().Draw(t, "request ID")
		role := rapid.OneOf(
			rapid.SampledFrom([]string{"boot", "data0", "data10"}),
			rapid.StringMatching(`[A-Za-z0-9._-]{0,30}`),
		).Draw(t, "role")

		instance, disk := naming.Instance(id), naming.Disk(role, id)
		checkLegal(t, instance)
		checkLegal(t, disk)
		checkLegal(t, naming.FloatingIP(rapid.IntRange(0, 31).Draw(t, "index"), id))

		if naming.Instance(id) != instance || naming.Disk(role, id) != disk {
			t.Fatalf("names of %q vary", id)
		}
	})
}

func TestDistinctRequestsHaveDistinctNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := requestIDs().Draw(t, "request ID")

		// The near misses: another case, a tail beyond what fits, another
		// character where both are illegal, our own form of the other.
		b := rapid.OneOf(
			requestIDs(),
			rapid.Just(strings.ToUpper(a)),
			rapid.Just(a+"-"),
			rapid.Just(a+"a"),
			rapid.Just(strings.ReplaceAll(a, "-", "_")),
			rapid.Just(naming.Instance(a)),
			rapid.Just(naming.Disk("boot", a)),
		).Draw(t, "other request ID")
		if a == b {
			return
		}

		if naming.Instance(a) == naming.Instance(b) {
			t.Fatalf("instances of %q and %q are both %q", a, b, naming.Instance(a))
		}

		if naming.FloatingIP(0, a) == naming.FloatingIP(0, b) || naming.FloatingIP(0, a) == naming.FloatingIP(1, a) {
			t.Fatalf("floating addresses of %q and %q share a name", a, b)
		}

		serials := map[string]bool{}
		for _, name := range []string{
			naming.Disk("boot", a), naming.Disk("boot", b), naming.Disk("data0", a), naming.Disk("data0", b),
			naming.Disk("long-role-1", a), naming.Disk("long-role-2", a),
		} {
			serials[prefix20(name)] = true
		}

		if len(serials) != 6 {
			t.Fatalf("disks of %q and %q share a serial number: %v", a, b, serials)
		}
	})
}

// prefix20 is what a guest sees of a disk's name.
func prefix20(name string) string { return name[:min(20, len(name))] }

func TestInstanceKeepsALegalRequestID(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("a", 63)

	for id, want := range map[string]string{
		"talos-workers-b2x4z9":                  "talos-workers-b2x4z9",
		"a":                                     "a",
		long:                                    long,
		"x-xabc":                                "x-xabc",
		"abcdef01-2345-6789-abcd-0123456789abc": "abcdef01-2345-6789-abcd-0123456789abc",
	} {
		if got := naming.Instance(id); got != want {
			t.Errorf("Instance(%q) = %q", id, got)
		}
	}

	for id, cut := range map[string]string{
		"":                                     "m",
		"...":                                  "m",
		"1-workers-bbbbbb":                     "m-1-workers-bbbbbb",
		"Prod.EU_Workers-bbbbbb":               "prod-eu-workers-bbbbbb",
		"trailing-":                            "trailing",
		strings.Repeat("a", 64):                strings.Repeat("a", 45),
		"abcdef0123456789abcdef0123456789":     "abcdef0123456789abcdef0123456789",
		"abcdef01-2345-6789-abcd-0123456789ab": "abcdef01-2345-6789-abcd-0123456789ab",
		"a-xabcdefghijklmnop":                  "a-xabcdefghijklmnop",
	} {
		if got := naming.Instance(id); !regexp.MustCompile(`^` + cut + `-x[a-z2-7]{16}$`).MatchString(got) {
			t.Errorf("Instance(%q) = %q", id, got)
		}
	}
}

func TestDiskBeginsWithItsRole(t *testing.T) {
	t.Parallel()

	for role, want := range map[string]string{
		"boot": "boot", "data0": "data0", "data10": "data10", "longer-than-nine": "longer-th", "eight88-x": "eight88-x",
		"cut-here--": "cut-here", "Etcd": "etcd", "0": "d-0", "": "d",
	} {
		name := naming.Disk(role, "talos-workers-b2x4z9")
		if !regexp.MustCompile(`^` + want + `-[a-z2-7]{10}-talos-workers-b2x4z9$`).MatchString(name) {
			t.Errorf("Disk(%q) = %q", role, name)
		}
	}
}

// A disk selector of Talos matches the serial number, which is all that a guest
// sees of a disk's name: it begins with the role as the class writes it, for
// whatever request, and no disk of another role or request begins the same.
func TestADiskSelectorCanMatchTheSerial(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		roles := rapid.StringMatching(fmt.Sprintf(`[a-z]([a-z0-9-]{0,%d}[a-z0-9])?`, naming.MaxDiskRole-2))
		a, b := roles.Draw(t, "role"), roles.Draw(t, "other role")
		id, other := requestIDs().Draw(t, "request ID"), requestIDs().Draw(t, "other request ID")

		serial := prefix20(naming.Disk(a, id))
		if !regexp.MustCompile(`^` + a + `-[a-z2-7]{10}(-|$)`).MatchString(serial) {
			t.Fatalf("the serial %q of disk %q is not its role and a whole hash", serial, a)
		}

		if a == b && id == other {
			return
		}

		if prefix20(naming.Disk(b, other)) == serial {
			t.Fatalf("disk %q of %q and disk %q of %q share the serial %q", a, id, b, other, serial)
		}
	})
}

func TestNewOwnerAndNewRunFitTheMark(t *testing.T) {
	t.Parallel()

	m := naming.Mark{
		Owner: naming.NewOwner(), Provider: "oxide", Kind: naming.KindNIC, Key: naming.RequestKey("x"), Run: naming.NewRun(),
	}
	if err := m.Validate(); err != nil {
		t.Error(err)
	}

	if naming.NewOwner() == m.Owner || naming.NewRun() == m.Run {
		t.Error("not random")
	}
}
