package machineclass

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Invariant: the README has every key of a class with its default and limits, as
// the code has them, and no other.
func TestREADMEHasTheKeys(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(text), summary()) {
		t.Errorf("the table of classes is not that of the code, which is:\n%s", summary())
	}
}
