// Package examples holds the example files, for the demo and for tests.
package examples

import _ "embed"

// MachineClass is machine-class.yaml, ready for omnictl apply. It is of
// MachineClassName, for provider ID ProviderID and the Oxide project Project.
//
//go:embed machine-class.yaml
var MachineClass []byte

// AllFields is machine-class-all-fields.yaml: the same with every field
// explained. It is made by "make generate".
//
//go:embed machine-class-all-fields.yaml
var AllFields []byte

// What stands in MachineClass.
const (
	MachineClassName = "oxide-small"
	ProviderID       = "oxide"
	Project          = "talos"
)
