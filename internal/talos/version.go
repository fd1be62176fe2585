// Package talos knows what the provider needs to know of Talos Linux: which
// versions can run on Oxide, and how a disk image is fetched from the image
// factory.
//
// A download is one stream: the factory's answer, its decoder, and the raw disk
// that comes out. Nothing is stored on the way. The beginning of the disk is decoded when
// the stream is opened, so that the disk's size is known before its first byte
// is used, and the stream only ends with io.EOF when the decoder's own checksum,
// the length of the answer and the length of the disk were all right.
package talos

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/version"
)

// Version is a Talos version. The zero value is no version: it is not supported.
type Version struct{ v semver.Version }

// ParseVersion reads a version such as 1.13.5, v1.13.5 or 1.14.0-rc.1.
func ParseVersion(s string) (Version, error) {
	v, err := semver.Parse(strings.TrimPrefix(s, "v"))
	if err != nil {
		return Version{}, fmt.Errorf("Talos version %.40q is not of the form 1.13.5: %w", s, err) //nolint:staticcheck // Talos is a name
	}

	if len(v.Build) > 0 {
		return Version{}, fmt.Errorf("Talos version %.40q has build metadata, which the image factory does not know", s) //nolint:staticcheck // Talos is a name
	}

	return Version{v: v}, nil
}

// String gives the version without a leading v.
func (v Version) String() string { return v.v.String() }

// Compare orders versions by the rules of semantic versioning: -1, 0 or 1.
func (v Version) Compare(o Version) int { return v.v.Compare(o.v) }

// Supported returns nil, or one line that says why this version can not run on
// Oxide.
func (v Version) Supported() error { return version.Talos(v.v) }

// Warning is one line about a supported version that is a pre-release, else "".
func (v Version) Warning() string {
	if len(v.v.Pre) == 0 || v.Supported() != nil {
		return ""
	}

	return fmt.Sprintf("Talos %s is a pre-release: its support for Oxide's config disk is not proven", v)
}
