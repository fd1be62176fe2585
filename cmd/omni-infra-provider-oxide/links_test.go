package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
)

// Rule: the SDK's Run ends when its streams can not be resumed, after a quarter of an
// hour by any broken connection. The real binary outlives it and works on in the same
// process. OIPO_BREAK is how old the streams are then; it takes so long.
func TestABrokenLinkIsOutlivedByTheProcess(t *testing.T) {
	t.Parallel()

	age, err := time.ParseDuration(os.Getenv("OIPO_BREAK"))
	if err != nil {
		t.Skip("it takes as long as OIPO_BREAK says, see make break; a stale bookmark does the same at once elsewhere")
	}

	p := newPlace(t, site.Config{})
	env := p.env("oxide")
	env["LOG_LEVEL"] = "debug"

	d := start(t, env)
	p.waitRegistered("oxide")
	p.set("workers", "oxide", 1)
	p.waitJoined("workers", 1)

	select {
	case <-time.After(age):
	case <-d.done:
		t.Fatalf("the daemon ended: %v", d.err)
	}

	p.Omni.DropConnections()
	p.eventually("Run to end", func() bool { return strings.Contains(d.log(), "link to Omni ended") })
	p.set("workers", "oxide", 3)
	p.waitJoined("workers", 3)

	if n := strings.Count(d.log(), `"linked to Omni"`); n != 1 {
		t.Errorf("work was begun %d times", n)
	}

	p.set("workers", "oxide", 0)
	p.waitNothingLeft()

	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
