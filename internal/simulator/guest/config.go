package guest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/fat12"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

var (
	errNoDisk   = errors.New("there is no boot disk")
	errArch     = errors.New("the image on the boot disk is for another architecture")
	errNotFound = errors.New("no volume cidata found: this Talos probes for ISO 9660 first and misses so small a FAT volume")
	errMount    = errors.New("mounting the volume cidata: FSCONFIG_CMD_CREATE failed: permission denied")
	errInclude  = errors.New("reading user-data: #include leads to a network that is not there")
)

// maxUnpacked bounds what a compressed user-data may unpack to, in bytes.
const maxUnpacked = 4 << 20

// isoProbe is how far a probe for ISO 9660 reads; a smaller volume makes the
// probe of Talos before 1.12 fail as a whole.
const isoProbe = 34 << 10

// The versions at which Talos changed what it does on Oxide.
var (
	probesFAT       = semver.MustParse("1.12.0-alpha.0")
	mountsReadOnly  = semver.MustParse("1.12.3")
	alwaysPublishes = semver.MustParse("1.12.0-beta.0")
)

// readUserData reads the config disk as the given version does. There may be no
// user-data: then it is empty.
func readUserData(version semver.Version, disk []byte) ([]byte, error) {
	if version.LT(probesFAT) && len(disk) < isoProbe {
		return nil, errNotFound
	}

	if version.GTE(probesFAT) && version.LT(mountsReadOnly) {
		return nil, errMount
	}

	volume, err := fat12.Open(disk)
	if err != nil {
		return nil, err
	}

	if label := volume.Label(); label != "cidata" && label != "CIDATA" {
		return nil, fmt.Errorf("no volume cidata found, only %q", label)
	}

	data, err := volume.ReadFile("user-data")
	if errors.Is(err, fat12.ErrNotExist) {
		return nil, nil
	}

	return data, err
}

// userConfig parses user-data as Talos does: nil if it holds no config.
func userConfig(data []byte) (config.Provider, error) {
	first, _, _ := bytes.Cut(data, []byte("\n"))

	switch first = bytes.TrimSpace(first); {
	case bytes.Equal(first, []byte("#cloud-config")):
		return nil, nil //nolint:nilnil // Talos ignores cloud-config as a whole
	case bytes.Equal(first, []byte("#include")):
		return nil, errInclude
	}

	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		zip, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("unpacking user-data: %w", err)
		}

		if data, err = io.ReadAll(io.LimitReader(zip, maxUnpacked)); err != nil {
			return nil, fmt.Errorf("unpacking user-data: %w", err)
		}
	}

	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil //nolint:nilnil // an empty file is no config
	}

	return loadConfig(data)
}

// loadConfig parses and validates config documents; unknown kinds and fields
// are errors.
func loadConfig(data []byte) (config.Provider, error) {
	c, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, fmt.Errorf("loading config: %w", err)
	}

	if _, err := c.Validate(cloudMode{}); err != nil { //nolint:staticcheck // the other one is for clients; this plays Talos
		return nil, fmt.Errorf("validating config: %w", err)
	}

	return c, nil
}

// cloudMode is Talos' mode on nocloud: the system is on the disk already.
type cloudMode struct{}

func (cloudMode) String() string        { return "cloud" }
func (cloudMode) RequiresInstall() bool { return false }
func (cloudMode) InContainer() bool     { return false }

// platform is what the machine publishes as its platform, "" for nothing.
// Oxide's config disk has no network-config, without which older versions
// publish nothing.
func (m *machine) platform(version semver.Version, image talosimage.Descriptor) string {
	if m.hw.NoPlatform || version.LT(alwaysPublishes) {
		return ""
	}

	return image.Platform
}

// hostname follows Talos' layers: config, then DHCP, then a name of its own.
func (m *machine) hostname(c config.Provider) string {
	if c != nil {
		if h := c.NetworkHostnameConfig(); h != nil && h.Hostname() != "" {
			return h.Hostname()
		}
	}

	if m.hw.Hostname != "" {
		return m.hw.Hostname
	}

	sum := sha256.Sum256([]byte(m.hw.UUID))
	text := hex.EncodeToString(sum[:])

	return "talos-" + text[:3] + "-" + text[3:6]
}

// kernelArg is the value of an argument of the image's command line.
func kernelArg(image talosimage.Descriptor, name string) string {
	for _, arg := range image.KernelArgs {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
	}

	return ""
}
