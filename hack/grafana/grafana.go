// Package grafana holds the dashboard.
package grafana

import _ "embed"

// Dashboard is the dashboard as Grafana imports it.
//
//go:embed omni-infra-provider-oxide.json
var Dashboard string
