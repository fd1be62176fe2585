package naming_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

const (
	testOwner = "abcdefghijklmnopqrstuvwxyz"
	testKey   = "0123456789abcdef0123456789abcdef"
	testRun   = "0a1b2c3d"
	good      = "[oipo/1 owner=" + testOwner + " provider=oxide kind=boot key=" + testKey + " run=" + testRun + "]"
)

var (
	schematic = strings.Repeat("3765", 16)
	goodImage = strings.TrimSuffix(strings.Replace(good, "kind=boot", "kind=image", 1), "]") +
		" schematic=" + schematic + " talos=1.13.5 arch=amd64 sb=false factory=0123456789abcdef]"
)

func testMark() naming.Mark {
	return naming.Mark{Owner: testOwner, Provider: "oxide", Kind: naming.KindBoot, Key: testKey, Run: testRun}
}

// marks draws any mark that can be written.
func marks() *rapid.Generator[naming.Mark] {
	return rapid.Custom(func(t *rapid.T) naming.Mark {
		m := naming.Mark{
			Owner:    rapid.StringMatching(`[a-z2-7]{26}`).Draw(t, "owner"),
			Provider: rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`).Draw(t, "provider"),
			Key:      rapid.StringMatching(`[0-9a-f]{32}`).Draw(t, "key"),
			Run:      rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "run"),
			Kind: rapid.SampledFrom([]naming.Kind{
				naming.KindBoot, naming.KindData, naming.KindNIC, naming.KindScratch, naming.KindSnapshot,
				naming.KindImage, naming.KindInstance, naming.KindIP, naming.KindGroup,
			}).Draw(t, "kind"),
		}

		if m.Kind == naming.KindImage {
			m.Image = &naming.ImageMark{
				Schematic:  rapid.StringMatching(`[0-9a-f]{64}`).Draw(t, "schematic"),
				Talos:      rapid.StringMatching(`[1-9]\.[1-9][0-9]\.0(-(alpha|beta)\.[0-9])?`).Draw(t, "talos"),
				Arch:       rapid.SampledFrom([]string{"amd64", "arm64"}).Draw(t, "arch"),
				SecureBoot: rapid.Bool().Draw(t, "secure boot"),
				Factory:    rapid.StringMatching(`[0-9a-f]{16}`).Draw(t, "factory"),
			}
		}

		return m
	})
}

func same(a, b naming.Mark) bool {
	if (a.Image == nil) != (b.Image == nil) || a.Image != nil && *a.Image != *b.Image {
		return false
	}

	a.Image, b.Image = nil, nil

	return a == b
}

func TestParseReadsWhatDescribeWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := marks().Draw(t, "mark")
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}

		description := m.Describe(rapid.String().Draw(t, "sentence"))
		if n := utf8.RuneCountInString(description); n > 400 {
			t.Fatalf("%d characters", n)
		}

		if !strings.HasSuffix(description, m.String()) {
			t.Fatalf("%q does not end with the mark", description)
		}

		if got, ok := naming.Parse(description); !ok || !same(got, m) {
			t.Fatalf("Parse(%q) = %+v, %t", description, got, ok)
		}
	})
}

func TestParseRefusesWhatDescribeCannotHaveWritten(t *testing.T) {
	t.Parallel()

	change := func(old, replacement string) string { return strings.Replace(good, old, replacement, 1) }

	for name, description := range map[string]string{
		"nothing":                "",
		"no mark":                "a disk",
		"text after the mark":    good + ".",
		"space after the mark":   good + " ",
		"newline after the mark": good + "\n",
		"no space before":        "a disk" + good,
		"two spaces before":      "a disk  " + good,
		"only a space before":    " " + good,
		"newline before":         "a disk\n" + good,
		"newline in sentence":    "a\ndisk " + good,
		"two marks":              good + " " + good,
		"other bracket":          "[x] " + good,
		"other version":          change("oipo/1", "oipo/2"),
		"upper case":             change("oipo", "OIPO"),
		"short owner":            change(testOwner, testOwner[1:]),
		"long owner":             change(testOwner, testOwner+"a"),
		"owner alphabet":         change(testOwner, "1"+testOwner[1:]),
		"empty provider":         change("provider=oxide", "provider="),
		"provider no label":      change("provider=oxide", "provider=-oxide"),
		"provider upper case":    change("provider=oxide", "provider=Oxide"),
		"provider too long":      change("provider=oxide", "provider="+strings.Repeat("a", 64)),
		"unknown kind":           change("kind=boot", "kind=vm"),
		"short key":              change(testKey, testKey[1:]),
		"key upper case":         change(testKey, strings.ToUpper(testKey)),
		"short run":              change(testRun, testRun[1:]),
		"no run":                 change(" run="+testRun, ""),
		"further key":            change("]", " x=y]"),
		"other order":            change("provider=oxide kind=boot", "kind=boot provider=oxide"),
		"two spaces":             change(" kind", "  kind"),
		"tab":                    change(" kind", "\tkind"),
		"key twice":              change("kind=boot", "kind=boot kind=boot"),
		"image without identity": change("kind=boot", "kind=image"),
		"identity without image": strings.Replace(goodImage, "kind=image", "kind=boot", 1),
		"part of an identity":    strings.Replace(goodImage, " arch=amd64", "", 1),
		"talos with v":           strings.Replace(goodImage, "talos=1", "talos=v1", 1),
		"sb neither":             strings.Replace(goodImage, "sb=false", "sb=0", 1),
		"too long":               strings.Repeat("a", 400-len(good)) + " " + good,
		"invalid UTF-8":          "\xff " + good,
		"unclosed":               strings.TrimSuffix(good, "]"),
	} {
		if m, ok := naming.Parse(description); ok {
			t.Errorf("%s: Parse(%q) = %+v", name, description, m)
		}
	}

	for _, description := range []string{good, "a disk " + good, goodImage, strings.Repeat("a", 399-len(good)) + " " + good} {
		if _, ok := naming.Parse(description); !ok {
			t.Errorf("Parse(%q) refused", description)
		}
	}
}

func TestValidateNamesEachWrongPart(t *testing.T) {
	t.Parallel()

	err := naming.Mark{Kind: "x", Image: &naming.ImageMark{}}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}

	for _, part := range []string{"owner", "provider", "key", "run", "kind"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}

	m := testMark()
	m.Kind = naming.KindImage

	if m.Validate() == nil {
		t.Error("image without identity accepted")
	}

	m.Image = &naming.ImageMark{Schematic: schematic, Talos: "1.13", Arch: "riscv64", Factory: "0123456789abcdef"}
	if err = m.Validate(); err == nil || !strings.Contains(err.Error(), "talos") || !strings.Contains(err.Error(), "arch") {
		t.Errorf("identity: %v", err)
	}
}

func TestDescribeCutsTheSentenceAndNeverTheMark(t *testing.T) {
	t.Parallel()

	m := testMark()

	for sentence, want := range map[string]string{
		"":                                 good,
		" \n ":                             good,
		"Boot disk of x.":                  "Boot disk of x. " + good,
		"line\none [two]":                  "line one (two) " + good,
		"a\xffb":                           "a?b " + good,
		strings.Repeat("ö", 399-len(good)): strings.Repeat("ö", 399-len(good)) + " " + good,
		strings.Repeat("ö", 400-len(good)): strings.Repeat("ö", 398-len(good)) + "… " + good,
	} {
		if got := m.Describe(sentence); got != want {
			t.Errorf("Describe(%q) = %q, want %q", sentence, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", good, goodImage, "a disk " + good, good + "]", "[" + good, strings.Replace(good, "1 ", "1  ", 1)} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, description string) {
		m, ok := naming.Parse(description)
		if !ok {
			return
		}

		// Invariant: there is one way only to write a mark, and it stands at
		// the very end of a description that we could have written.
		if err := m.Validate(); err != nil {
			t.Fatalf("Parse(%q) is not valid: %v", description, err)
		}

		if !strings.HasSuffix(description, m.String()) || strings.Count(description, "[") != 1 {
			t.Fatalf("Parse(%q) = %s", description, m)
		}

		if utf8.RuneCountInString(description) > 400 {
			t.Fatalf("Parse(%q) accepted %d characters", description, utf8.RuneCountInString(description))
		}

		if again, ok := naming.Parse(m.String()); !ok || !same(again, m) {
			t.Fatalf("Parse(%s) = %+v, %t", m, again, ok)
		}
	})
}
