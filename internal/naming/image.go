package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	imageHash      = 10
	imageSchematic = 12
	imageTalos     = 24 // leaves room for every other part within 63 characters
)

// ImageIdentity is all that makes one Talos disk image another than the next.
type ImageIdentity struct {
	Schematic   string // the factory's full schematic ID, 64 hexadecimal digits
	Talos       string // Talos version without "v", such as "1.13.5"
	Arch        string // "amd64" or "arm64"
	SecureBoot  bool
	FactoryHost string // host, with the port if the URL has one
}

// Key is the key in the marks of the image and of everything made while it
// is imported: 32 hexadecimal digits of SHA-256 over the identity.
func (i ImageIdentity) Key() string {
	sum := sha256.Sum256([]byte(strings.Join(i.parts(), "\x00")))

	return hex.EncodeToString(sum[:16])
}

// Mark returns the identity as the mark of an image carries it.
func (i ImageIdentity) Mark() *ImageMark {
	sum := sha256.Sum256([]byte(i.host()))

	return &ImageMark{
		Schematic:  i.Schematic,
		Talos:      i.Talos,
		Arch:       i.Arch,
		SecureBoot: i.SecureBoot,
		Factory:    hex.EncodeToString(sum[:8]),
	}
}

// IsImage tells whether the mark is that of an image with exactly this
// identity, whoever made it.
func (m Mark) IsImage(i ImageIdentity) bool {
	return m.Kind == KindImage && m.Image != nil && *m.Image == *i.Mark() && m.Key == i.Key()
}

// Image returns the name of the image with the identity, such as
// "talos-1-13-5-376567988ad3-amd64-sb-abcdefghij".
func Image(i ImageIdentity) string {
	parts := []string{
		"talos",
		readable("v"+i.Talos, "v", imageTalos+1)[1:],
		prefix(i.Schematic, imageSchematic),
		i.Arch,
	}

	if i.SecureBoot {
		parts = append(parts, "sb")
	}

	head := readable(strings.Join(parts, "-"), "talos", maxName-1-imageHash)

	return head + "-" + hashed(imageHash, i.parts()...)
}

// Scratch returns the name of a scratch object (disk or snapshot) of an
// import of the image. The random part, 8 hexadecimal digits, keeps attempts
// apart: no attempt ever meets what another has left behind.
func Scratch(i ImageIdentity, random string) string {
	return "oipo-scratch-" + hashed(imageHash, i.parts()...) + "-" + random
}

// parts are hashed in this order, which is part of the stored format.
func (i ImageIdentity) parts() []string {
	return []string{"image", i.Schematic, i.Talos, i.Arch, strconv.FormatBool(i.SecureBoot), i.host()}
}

// host is compared without regard to case, as hosts are.
func (i ImageIdentity) host() string { return strings.ToLower(i.FactoryHost) }

func prefix(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}

	return s
}
