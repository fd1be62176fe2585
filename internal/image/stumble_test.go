package image

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// The user can read why an upload stands still while its writes are tried again.
func TestAnUploadThatStumblesSaysWhy(t *testing.T) {
	t.Parallel()

	j := newJob(naming.ImageIdentity{Talos: "1.13.5"}, key{}, func(error) {})
	j.expect(100 * mib)
	j.progress(6 * mib)
	j.stumble(errors.New("boom"), 1)

	start := time.Now()

	if got := j.line(start); strings.Contains(got, "boom") {
		t.Errorf("one failed try is told: %q", got)
	}

	j.stumble(errors.New("boom"), 5)

	if got := j.line(start.Add(holdFor)); !strings.Contains(got, "6 %") || !strings.Contains(got, "a write fails: boom (try 5)") {
		t.Errorf("got %q", got)
	}

	j.progress(mib)

	if got := j.line(start.Add(2 * holdFor)); strings.Contains(got, "boom") {
		t.Errorf("all is well again, and it says %q", got)
	}
}

// A factory that builds says nothing for minutes: the user sees for how long.
func TestAWaitForABuildSaysHowLong(t *testing.T) {
	t.Parallel()

	j := newJob(naming.ImageIdentity{Talos: "1.13.5"}, key{}, func(error) {})
	j.enter(PhaseOpening)

	start := time.Now()

	if got := j.line(start); got != "waiting for the image factory to build the Talos 1.13.5 image" {
		t.Errorf("got %q", got)
	}

	if got := j.line(start.Add(7*time.Minute + time.Second)); !strings.HasSuffix(got, ", for 7 min so far; it may take 20") {
		t.Errorf("got %q", got)
	}
}
