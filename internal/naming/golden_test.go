package naming_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew")

// Invariant: stored formats are promises. A line of the golden file may be
// added and never changed: objects of earlier releases carry these names and
// marks.
func TestGolden(t *testing.T) {
	t.Parallel()

	var b strings.Builder

	for _, id := range []string{
		"talos-workers-b2x4z9", "Prod.EU_Workers-bbbbbb", "1-control-planes-zzzzzz",
		"abcdef0123456789abcdef0123456789", "a-xabcdefghijklmnop", strings.Repeat("long-", 20) + "bbbbbb", "trailing-",
	} {
		fmt.Fprintf(&b, "request %s\n", id)
		fmt.Fprintf(&b, "  key      %s\n", naming.RequestKey(id))
		fmt.Fprintf(&b, "  instance %s\n", naming.Instance(id))

		for _, role := range []string{"boot", "data0", "data10"} {
			fmt.Fprintf(&b, "  disk     %s\n", naming.Disk(role, id))
		}

		fmt.Fprintf(&b, "  group    %s\n", naming.SetGroup(testMark().Owner, testMark().Provider, id, "allow", 1))
	}

	for _, i := range variants() {
		fmt.Fprintf(&b, "image %s %s %s %t %s\n", i.Schematic, i.Talos, i.Arch, i.SecureBoot, i.FactoryHost)
		fmt.Fprintf(&b, "  name     %s\n", naming.Image(i))
		fmt.Fprintf(&b, "  scratch  %s\n", naming.Scratch(i, testRun))

		m := testMark()
		m.Kind, m.Key, m.Image = naming.KindImage, i.Key(), i.Mark()
		fmt.Fprintf(&b, "  mark     %s\n", m)
	}

	m := testMark()
	for _, m.Kind = range []naming.Kind{
		naming.KindBoot, naming.KindData, naming.KindNIC, naming.KindScratch, naming.KindSnapshot,
		naming.KindInstance, naming.KindIP, naming.KindGroup,
	} {
		fmt.Fprintf(&b, "mark %s\n", m)
	}

	for _, id := range []string{"talos-workers-b2x4z9", "Prod.EU_Workers-bbbbbb", strings.Repeat("long-", 20) + "bbbbbb"} {
		for _, index := range []int{0, 31} {
			fmt.Fprintf(&b, "floating address %d of %s\n  name     %s\n", index, id, naming.FloatingIP(index, id))
		}
	}

	const file = "testdata/golden.txt"

	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if string(want) != b.String() {
		t.Errorf("stored names and marks have changed; objects in racks would no longer be recognised. Now:\n%s", b.String())
	}
}
