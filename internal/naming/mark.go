package naming

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxDescription is the most characters that a description of ours has. The
// rack stores 512 and answers 500 for more.
const maxDescription = 400

// Kind says what a marked object is. The values are stored.
type Kind string

// The kinds of marked objects.
const (
	KindBoot     Kind = "boot"     // boot disk of an instance
	KindData     Kind = "data"     // further disk of an instance
	KindNIC      Kind = "nic"      // network interface of an instance
	KindScratch  Kind = "scratch"  // disk that an image is imported through
	KindSnapshot Kind = "snapshot" // snapshot that an image is made from
	KindImage    Kind = "image"
	KindInstance Kind = "instance"
	KindIP       Kind = "ip"    // floating address
	KindGroup    Kind = "group" // anti-affinity group
)

var kinds = []Kind{
	KindBoot, KindData, KindNIC, KindScratch, KindSnapshot, KindImage, KindInstance, KindIP, KindGroup,
}

// Mark is the proof of ownership at the end of an object's description:
//
//	[oipo/1 owner=… provider=… kind=… key=… run=…]
//	[oipo/1 owner=… provider=… kind=image key=… run=… schematic=… talos=… arch=… sb=… factory=…]
//
// Only what Parse reads from a description is ours.
type Mark struct {
	Owner    string // 26 base32 characters, one Omni account's provider (NewOwner)
	Provider string // provider ID, a DNS label
	Kind     Kind
	Key      string     // 32 hexadecimal digits: RequestKey or ImageIdentity.Key
	Run      string     // 8 hexadecimal digits, one life of a process (NewRun)
	Image    *ImageMark // for KindImage, and for no other
}

// ImageMark is the part of an image's mark that says which image it is.
type ImageMark struct {
	Schematic  string // 64 hexadecimal digits
	Talos      string // version without "v", at most 40 characters
	Arch       string // "amd64" or "arm64"
	SecureBoot bool
	Factory    string // 16 hexadecimal digits of SHA-256 over the factory's host
}

const (
	ownerForm     = `[a-z2-7]{26}`
	providerForm  = `[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?`
	keyForm       = `[0-9a-f]{32}`
	runForm       = `[0-9a-f]{8}`
	schematicForm = `[0-9a-f]{64}`
	talosForm     = `(?:0|[1-9][0-9]{0,4})(?:\.(?:0|[1-9][0-9]{0,4})){2}(?:-[0-9A-Za-z][0-9A-Za-z.-]{0,21})?`
	archForm      = `amd64|arm64`
	factoryForm   = `[0-9a-f]{16}`
)

// markForm is the whole grammar: fixed keys in fixed order, single spaces.
var markForm = regexp.MustCompile(`^\[oipo/1 owner=(` + ownerForm + `) provider=(` + providerForm +
	`) kind=([a-z]+) key=(` + keyForm + `) run=(` + runForm + `)` +
	`(?: schematic=(` + schematicForm + `) talos=(` + talosForm + `) arch=(` + archForm +
	`) sb=(true|false) factory=(` + factoryForm + `))?\]$`)

// Validate tells whether the mark can be written so that Parse reads it
// again; the error names each wrong part.
func (m Mark) Validate() error {
	problems := []error{
		check("owner", m.Owner, ownerForm),
		check("provider", m.Provider, providerForm),
		check("key", m.Key, keyForm),
		check("run", m.Run, runForm),
	}

	if !slices.Contains(kinds, m.Kind) {
		problems = append(problems, fmt.Errorf("mark: unknown kind %q", m.Kind))
	}

	switch {
	case m.Kind == KindImage && m.Image == nil:
		problems = append(problems, errors.New("mark: an image needs its identity"))
	case m.Kind != KindImage && m.Image != nil:
		problems = append(problems, fmt.Errorf("mark: the kind %q has no image identity", m.Kind))
	case m.Image != nil:
		problems = append(problems,
			check("schematic", m.Image.Schematic, schematicForm),
			check("talos", m.Image.Talos, talosForm),
			check("arch", m.Image.Arch, archForm),
			check("factory", m.Image.Factory, factoryForm))
	}

	return errors.Join(problems...)
}

// compiled are the forms of the grammar by themselves, made on first use: a
// sweep parses the marks of all objects of a project.
var compiled sync.Map

func whole(form string) *regexp.Regexp {
	if r, ok := compiled.Load(form); ok {
		return r.(*regexp.Regexp) //nolint:errcheck,forcetypeassert // nothing else is stored
	}

	r := regexp.MustCompile(`^(?:` + form + `)$`)
	compiled.Store(form, r)

	return r
}

func check(field, value, form string) error {
	if whole(form).MatchString(value) {
		return nil
	}

	return fmt.Errorf("mark: %s %q is not of the form %s", field, value, form)
}

// String writes the mark. A mark that Validate refuses is written too, but
// Parse does not read it.
func (m Mark) String() string {
	var b strings.Builder

	fmt.Fprintf(&b, "[oipo/1 owner=%s provider=%s kind=%s key=%s run=%s", m.Owner, m.Provider, m.Kind, m.Key, m.Run)

	if i := m.Image; i != nil {
		fmt.Fprintf(&b, " schematic=%s talos=%s arch=%s sb=%t factory=%s", i.Schematic, i.Talos, i.Arch, i.SecureBoot, i.Factory)
	}

	b.WriteByte(']')

	return b.String()
}

// Describe returns the description of an object: a sentence for people and
// the mark, at most 400 characters together. The sentence is put on one line,
// loses its square brackets and is cut where it does not fit.
func (m Mark) Describe(sentence string) string {
	mark := m.String()
	sentence = strings.NewReplacer("[", "(", "]", ")").Replace(strings.ToValidUTF8(sentence, "?"))
	sentence = strings.Join(strings.Fields(sentence), " ")

	room := maxDescription - utf8.RuneCountInString(mark) - 1
	if runes := []rune(sentence); len(runes) > room {
		sentence = strings.TrimRight(string(runes[:max(room-1, 0)]), " ") + "…"
	}

	if sentence == "" || room < 1 {
		return mark
	}

	return sentence + " " + mark
}

// Parse reads the mark from the end of a description. It is strict: what
// Describe can not have written is not a mark, and an object without a mark
// is nobody we know.
func Parse(description string) (Mark, bool) {
	start := strings.IndexByte(description, '[')
	if start < 0 || utf8.RuneCountInString(description) > maxDescription || !sentenceForm(description[:start]) {
		return Mark{}, false
	}

	f := markForm.FindStringSubmatch(description[start:])
	if f == nil {
		return Mark{}, false
	}

	m := Mark{Owner: f[1], Provider: f[2], Kind: Kind(f[3]), Key: f[4], Run: f[5]}

	if f[6] != "" {
		secure, err := strconv.ParseBool(f[9])
		if err != nil {
			return Mark{}, false
		}

		m.Image = &ImageMark{Schematic: f[6], Talos: f[7], Arch: f[8], SecureBoot: secure, Factory: f[10]}
	}

	if m.Validate() != nil {
		return Mark{}, false
	}

	return m, true
}

// sentenceForm tells whether s, what stands before a mark, is nothing or a
// sentence as Describe writes it: one line, one space before the mark.
func sentenceForm(s string) bool {
	if s == "" {
		return true
	}

	sentence, spaced := strings.CutSuffix(s, " ")

	return spaced && sentence != "" && utf8.ValidString(sentence) && sentence == strings.Join(strings.Fields(sentence), " ")
}
