package image

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

const (
	// maxReason is the longest line that Omni's page is given.
	maxReason = 200
	// maxCause leaves room for what was being done and for the next try.
	maxCause = 155

	// A line changes at most this often, or by this many percent: each change
	// is a write to Omni that everybody's watch sees.
	holdFor     = 10 * time.Second
	holdPercent = 10
	minRetry    = time.Second

	mib = 1 << 20
)

// cause is what an error means for the next try.
type cause struct {
	retryAfter       time.Duration // the factory's own wish
	schematicUnknown bool
	mend             bool // only a person can mend it
}

func causeOf(err error) cause {
	if _, ok := errors.AsType[*MendError](err); ok {
		return cause{mend: true}
	}

	f, ok := errors.AsType[*talos.FactoryError](err)
	if !ok {
		return cause{}
	}

	switch f.Kind {
	case talos.KindNotFound:
		return cause{schematicUnknown: true}
	case talos.KindRetryLater:
		return cause{retryAfter: f.RetryAfter}
	case talos.KindVersionNotFound, talos.KindAuth:
		return cause{mend: true}
	case talos.KindTransport, talos.KindServer, talos.KindContent:
	}

	return cause{}
}

// shown is the line that was last given out.
type shown struct {
	text    string
	at      time.Time
	phase   Phase
	attempt int
	percent uint64
}

// status answers for an image that is not there yet.
func (j *job) status(now time.Time) (Status, error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	s := Status{Reason: j.line(now), RetryIn: j.retryIn(now), SchematicUnknown: j.unknown}
	j.unknown = false

	if j.phase == PhaseFailed && causeOf(j.err).mend {
		return s, &MendError{Reason: s.Reason}
	}

	return s, nil
}

// line is the text for people, held steady. The caller holds mu.
func (j *job) line(now time.Time) string {
	p := j.percent()
	last := j.shown

	if last.text != "" && last.phase == j.phase && last.attempt == j.attempts &&
		now.Sub(last.at) < holdFor && p < last.percent+holdPercent {
		return last.text
	}

	j.shown = shown{text: clip(j.text(now), maxReason), at: now, phase: j.phase, attempt: j.attempts, percent: p}

	return j.shown.text
}

func (j *job) percent() uint64 {
	if j.total == 0 {
		return 0
	}

	return j.done * 100 / j.total
}

func (j *job) text(now time.Time) string {
	what := fmt.Sprintf("Talos %s image", j.identity.Talos)

	switch j.phase {
	case PhaseQueued:
		return fmt.Sprintf("waiting to upload the %s until another upload ends (--max-uploads)", what)
	case PhaseQuota:
		if j.short != nil {
			return j.short.text(j.identity.Talos)
		}
	case PhaseOpening:
		line := "waiting for the image factory to build the " + what
		// It says nothing until it is done, so the time is all the progress there is.
		if minutes := int(now.Sub(j.since).Minutes()); minutes > 0 {
			line += fmt.Sprintf(", for %d min so far; it may take 20", minutes)
		}

		return line
	case PhaseUploading:
		line := fmt.Sprintf("uploading %s: %d %% (%d of %d MiB%s)", what, j.percent(), j.done/mib, (j.total+mib-1)/mib, j.speed())
		if j.stumbles != "" {
			line += "; a write fails: " + j.stumbles
		}

		return line
	case PhaseSealing:
		return fmt.Sprintf("waiting for the rack to finalize the %s", what)
	case PhasePublishing:
		return fmt.Sprintf("publishing the %s", what)
	case PhaseFailed:
		return fmt.Sprintf("image import failed: %s; next try at %s UTC",
			clip(j.err.Error(), maxCause), j.nextTry.UTC().Format(time.TimeOnly))
	case PhaseLooking:
	}

	return fmt.Sprintf("looking for the %s in the rack", what)
}

// retryIn estimates when there is something new to say: nothing else wakes who
// waits. Young phases are looked at often, old ones seldom, and an upload when
// its next ten percent are due. The caller holds mu.
func (j *job) retryIn(now time.Time) time.Duration {
	age := now.Sub(j.since)

	switch j.phase {
	case PhaseFailed:
		return min(max(j.nextTry.Sub(now), 0)+time.Second, 30*time.Second)
	case PhaseUploading:
		if j.done > 0 {
			percent := float64(j.total) / 100
			due := min(holdPercent*percent, float64(j.total-j.done))

			return min(max(time.Duration(float64(age)*due/float64(j.done)), minRetry), holdFor)
		}
	case PhaseLooking, PhaseQueued, PhaseQuota, PhaseOpening, PhaseSealing, PhasePublishing:
	}

	return min(max(age/2, minRetry), holdFor)
}

// clip makes one line of at most n bytes.
func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= n {
		return s
	}

	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}

// imageLog is a logger that names the image.
func (m *Manager) imageLog(id naming.ImageIdentity) *zap.Logger {
	return m.cfg.Log.With(zap.String("talos.version", id.Talos), zap.String("talos.schematic", id.Schematic))
}
