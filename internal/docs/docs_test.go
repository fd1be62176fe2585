package docs_test

import (
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/docs"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/machineclass"
)

// Invariant: the page says what the code does.
func TestMachineClassPageIsThatOfTheCode(t *testing.T) {
	t.Parallel()

	if docs.MachineClass != machineclass.Reference() {
		t.Error("machine-class.md is old: run make generate")
	}
}
