package machineclass

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README has every key of a class with its default, and no other.
func TestREADMEHasTheKeys(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	_, rest, _ := strings.Cut(string(text), "| Key | Default | Meaning |\n|---|---|---|\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	rows := strings.Split(table, "\n")

	if len(rows) != len(fields()) {
		t.Fatalf("%d rows for %d keys", len(rows), len(fields()))
	}

	for i, f := range fields() {
		if !strings.HasPrefix(rows[i], "| `"+f.key+"` |") {
			t.Errorf("row %d is not of %s: %s", i, f.key, rows[i])
		}
	}
}
