package provider

import (
	_ "embed"
	"encoding/base64"
)

//go:embed icon.svg
var iconSVG []byte

// icon is shown beside the provider in Omni, which wants plain base64.
var icon = base64.StdEncoding.EncodeToString(iconSVG)
