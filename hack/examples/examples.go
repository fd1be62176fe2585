// Package examples holds the example files, for the demo and for tests.
package examples

import _ "embed"

// MachineClass is machine-class.yaml, ready for omnictl apply. It is of
// MachineClassName, for provider ID ProviderID and the Oxide project Project.
//
//go:embed machine-class.yaml
var MachineClass []byte

// What stands in MachineClass.
const (
	MachineClassName = "oxide-small"
	ProviderID       = "oxide"
	Project          = "talos"
)
