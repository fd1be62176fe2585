// Package version says what this build is and what it was made to work with.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

const (
	// OxideAPIVersion is the version of the Oxide API that every call asks
	// for; a rack older than it answers none of them.
	OxideAPIVersion = "2026060800"

	// MinimumTalos is the first Talos version that reads the disk which a
	// rack hands an instance its configuration on.
	MinimumTalos = "1.12.3"

	oxideClient = "github.com/oxidecomputer/oxide.go"
	omniClient  = "github.com/siderolabs/omni/client"
	unknown     = "unknown"
)

// Set by the linker: -X .../internal/version.version=v1.2.3 -X ….commit=….
var (
	version string
	commit  string
)

// Info is what this build is.
type Info struct {
	Version     string // "v1.2.3", or "dev" for a build without one
	Commit      string // or "unknown"
	Go          string
	OxideClient string // version of oxide.go
	OmniClient  string // version of Omni's client, which holds the provider SDK
}

// Get returns what this build is: what the linker was told, and what Go
// recorded about the rest.
func Get() Info {
	build, _ := debug.ReadBuildInfo()

	return get(build)
}

func get(build *debug.BuildInfo) Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version(), OxideClient: unknown, OmniClient: unknown}

	if build != nil {
		if info.Version == "" && build.Main.Version != "(devel)" {
			info.Version = build.Main.Version
		}

		for _, s := range build.Settings {
			if s.Key == "vcs.revision" && info.Commit == "" {
				info.Commit = s.Value
			}
		}

		for _, d := range build.Deps {
			switch d.Path {
			case oxideClient:
				info.OxideClient = d.Version
			case omniClient:
				info.OmniClient = d.Version
			}
		}
	}

	if info.Version == "" {
		info.Version = "dev"
	}

	if info.Commit == "" {
		info.Commit = unknown
	}

	return info
}

// String is the text of the version command, one fact a line.
func (i Info) String() string {
	var b strings.Builder

	for _, line := range [][2]string{
		{"version", i.Version},
		{"commit", i.Commit},
		{"go", i.Go},
		{"oxide api", OxideAPIVersion},
		{"oxide.go", i.OxideClient},
		{"omni client", i.OmniClient},
		{"minimum talos", MinimumTalos},
	} {
		fmt.Fprintf(&b, "%-14s %s\n", line[0]+":", line[1])
	}

	return b.String()
}

// UserAgent is sent with every HTTP call of the daemon.
func UserAgent() string { return "omni-infra-provider-oxide/" + Get().Version }
