// Command empty is what the daemon can at best be: it loads what every provider
// needs, Omni's and Oxide's SDK, and says one line.
package main

import (
	"os"

	_ "github.com/oxidecomputer/oxide.go/oxide"
	_ "github.com/siderolabs/omni/client/pkg/client"
	_ "github.com/siderolabs/omni/client/pkg/infra"
)

func main() { _, _ = os.Stdout.WriteString("{}\n") }
