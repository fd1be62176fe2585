// Package version says what this build is and what it was made to work with.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

const (
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
	Version     string `json:"version"` // "v1.2.3", or "dev" for a build without one
	Commit      string `json:"commit"`  // or "unknown"
	Go          string `json:"go"`
	OxideAPI    string `json:"oxide_api"`
	OxideClient string `json:"oxide_client"` // version of oxide.go
	OmniClient  string `json:"omni_client"`  // version of Omni's client, which holds the provider SDK
	// MinimumOmni and MinimumTalos are the first versions that are supported.
	MinimumOmni  string `json:"minimum_omni"`
	MinimumTalos string `json:"minimum_talos"`
}

// Get returns what this build is: what the linker was told, and what Go
// recorded about the rest.
func Get() Info {
	build, _ := debug.ReadBuildInfo()

	return get(build)
}

func get(build *debug.BuildInfo) Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version(), OxideClient: unknown, OmniClient: unknown,
		OxideAPI: OxideAPIVersion, MinimumOmni: MinimumOmni, MinimumTalos: MinimumTalos}

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
		{"oxide api", i.OxideAPI},
		{"oxide.go", i.OxideClient},
		{"omni client", i.OmniClient},
		{"minimum omni", i.MinimumOmni},
		{"minimum talos", i.MinimumTalos},
	} {
		fmt.Fprintf(&b, "%-14s %s\n", line[0]+":", line[1])
	}

	return b.String()
}

// UserAgent is sent with every HTTP call of the daemon.
func UserAgent() string { return "omni-infra-provider-oxide/" + Get().Version }
