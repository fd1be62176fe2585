package rack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/conform"
)

// Every operation that is served is one of the document's.
func TestServedOperationsAreTheDocuments(t *testing.T) {
	operations, err := conform.Operations()
	if err != nil {
		t.Fatal(err)
	}

	if operations == nil {
		t.Logf("%s is not set: nothing to compare with", conform.DocumentVariable)

		return
	}

	for _, route := range apiRoutes() {
		if got := operations[route.pattern]; got != route.op {
			t.Errorf("%s is %q in the document, not %s", route.pattern, got, route.op)
		}
	}
}

// A rack that shall be checked and can not be does not come up.
func TestAMissingDocumentIsAnError(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "none.json"), os.DevNull} {
		t.Setenv(conform.DocumentVariable, path)

		if s, err := New(Config{}); err == nil {
			s.Close()
			t.Errorf("a rack came up with the document %s", path)
		}
	}
}
