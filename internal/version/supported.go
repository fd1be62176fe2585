package version

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
)

// What this build works with. All that depends on it asks here, and what the
// README promises is this.
const (
	// OxideAPIVersion is the version of the Oxide API that every call asks
	// for; a rack older than it answers none of them, a newer one translates.
	OxideAPIVersion = "2026060800"

	// OxideRelease is the first release of racks that speak it.
	OxideRelease = "20"

	// MinimumOmni is the first Omni that registers schematics for providers and
	// shows what a request waits for; with an older one machines are made all the
	// same, but nothing is promised.
	MinimumOmni = "1.9.0"

	// MinimumTalos is the first Talos version that reads the disk which a
	// rack hands an instance its configuration on: 1.12.0 to 1.12.2 mount its FAT
	// volume for writing, which the read-only disk refuses, and older ones do not
	// find so small a volume.
	MinimumTalos = "1.12.3"
)

// Talos returns nil, or one line that says why machines of the version can not run
// on Oxide.
func Talos(v semver.Version) error {
	if v.GTE(semver.MustParse(MinimumTalos)) {
		return nil
	}

	return fmt.Errorf("Talos %s can not read the config disk of an Oxide instance and would never join: use Talos %s or later", v, MinimumTalos)
}

// Omni returns nil, or one line that says why an Omni of the version is not
// supported. One that does not tell its version in a known form is taken for a
// development build.
func Omni(text string) error {
	v, err := semver.ParseTolerant(strings.TrimPrefix(text, "v"))
	if err != nil {
		return nil //nolint:nilerr // a development build
	}

	// A pre-release of the first one has what the release has.
	v.Pre = nil

	if v.GTE(semver.MustParse(MinimumOmni)) {
		return nil
	}

	return fmt.Errorf("Omni is of version %s, and this provider (%s) supports Omni %s or later: update Omni", text, Get().Version, MinimumOmni)
}

// OxideAPI words that a rack does not speak our version of the API; reason is the
// rack's own, which is all that a tenant can learn of the rack's version.
func OxideAPI(rack, reason string) string {
	return fmt.Sprintf("%s does not speak our API version %s (release %s or later), update it or use an older provider: %s",
		rack, OxideAPIVersion, OxideRelease, reason)
}
