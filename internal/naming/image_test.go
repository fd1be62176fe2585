package naming_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

func testIdentity() naming.ImageIdentity {
	return naming.ImageIdentity{Schematic: schematic, Talos: "1.13.5", Arch: "amd64", FactoryHost: "factory.talos.dev"}
}

// variants are the identity and all that differ from it in one part.
func variants() []naming.ImageIdentity {
	all := make([]naming.ImageIdentity, 6)
	for i := range all {
		all[i] = testIdentity()
	}

	all[1].Schematic = schematic[:63] + "f" // beyond what the name shows
	all[2].Talos = "1.13.50"
	all[3].Arch = "arm64"
	all[4].SecureBoot = true
	all[5].FactoryHost = "factory.talos.dev:8443"

	return all
}

func TestEachPartOfTheIdentityCounts(t *testing.T) {
	t.Parallel()

	keys, names, scratch := map[string]bool{}, map[string]bool{}, map[string]bool{}

	for i, a := range variants() {
		keys[a.Key()], names[naming.Image(a)], scratch[naming.Scratch(a, "0a1b2c3d")] = true, true, true

		checkLegal(t, naming.Image(a))
		checkLegal(t, naming.Scratch(a, naming.NewRun()))

		m := testMark()
		m.Kind, m.Key, m.Image = naming.KindImage, a.Key(), a.Mark()

		if err := m.Validate(); err != nil {
			t.Errorf("mark of %+v: %v", a, err)
		}

		for j, b := range variants() {
			if m.IsImage(b) != (i == j) {
				t.Errorf("IsImage of %+v for %+v: %t", a, b, i != j)
			}
		}
	}

	if n := len(variants()); len(keys) != n || len(names) != n || len(scratch) != n {
		t.Errorf("not distinct: %v %v %v", keys, names, scratch)
	}
}

func TestIsImageWantsAnImageWithTheKey(t *testing.T) {
	t.Parallel()

	id := testIdentity()
	m := testMark()
	m.Key, m.Image = id.Key(), id.Mark()

	if m.IsImage(id) {
		t.Error("a boot disk is no image")
	}

	m.Kind, m.Key = naming.KindImage, testKey
	if m.IsImage(id) {
		t.Error("another key")
	}

	m.Key, m.Image = id.Key(), nil
	if m.IsImage(id) {
		t.Error("no identity")
	}
}

func TestFactoryHostIgnoresCase(t *testing.T) {
	t.Parallel()

	a, b := testIdentity(), testIdentity()
	b.FactoryHost = "Factory.Talos.DEV"

	if a.Key() != b.Key() || *a.Mark() != *b.Mark() || naming.Image(a) != naming.Image(b) {
		t.Error("the case of the host matters")
	}
}

func TestImageNamesAreLegal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		checkLegal(t, naming.Image(naming.ImageIdentity{
			Schematic:   rapid.StringMatching(`[0-9a-f]{0,64}`).Draw(t, "schematic"),
			Talos:       rapid.StringMatching(`[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(-[A-Za-z0-9.-]{0,40})?`).Draw(t, "talos"),
			Arch:        rapid.SampledFrom([]string{"amd64", "arm64"}).Draw(t, "arch"),
			SecureBoot:  rapid.Bool().Draw(t, "secure boot"),
			FactoryHost: rapid.String().Draw(t, "host"),
		}))
	})
}

func TestImageNameIsReadable(t *testing.T) {
	t.Parallel()

	id := testIdentity()
	id.Talos, id.SecureBoot = "1.14.0-alpha.1", true

	if got := naming.Image(id); !strings.HasPrefix(got, "talos-1-14-0-alpha-1-376537653765-amd64-sb-") {
		t.Errorf("Image = %q", got)
	}
}
