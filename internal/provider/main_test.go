package provider

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// testID is the provider ID of all tests: a process has one.
const testID = "oxide-test"

func TestMain(m *testing.M) {
	if err := Bind(testID); err != nil {
		panic(err)
	}

	if code := m.Run(); code != 0 {
		os.Exit(code)
	}

	if err := goleak.Find(); err != nil {
		panic(err)
	}
}
