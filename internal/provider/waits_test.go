package provider

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	omnispecs "github.com/siderolabs/omni/client/api/omni/specs"
	"go.uber.org/zap/zapcore"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// pages collects what Omni's page shows of a request, each change once, until a
// condition holds.
func (b *bench) pages(id string, holds func(*omnispecs.MachineRequestStatusSpec) bool) []string {
	b.t.Helper()

	var shown []string

	b.until(id+" to get on", func() bool {
		st := b.status(id)
		page := fmt.Sprintf("%s: %s", st.GetStage(), st.GetStatus())

		if len(shown) == 0 || shown[len(shown)-1] != page {
			shown = append(shown, page)
		}

		return holds(st)
	})

	return shown
}

func isProvisioned(st *omnispecs.MachineRequestStatusSpec) bool {
	return st.GetStage() == stageProvisioned
}

// Invariant: the user can read why. The progress of an upload stands in the
// request's status, which is what the page renders, and steadily.
func TestTheProgressOfAnImageStandsOnThePage(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.images.answers(func(n int, _ image.Want) (image.Status, error) {
			if n > 40 {
				return b.ready(b.talosImage), nil
			}

			return image.Status{Reason: fmt.Sprintf("uploading Talos 1.13.5: %d %%", n), RetryIn: time.Second}, nil
		})
		b.start()
		b.ask(theRequest)

		var uploads []string

		for _, p := range b.pages(theRequest, isProvisioned) {
			if strings.HasPrefix(p, "FAILED") {
				t.Errorf("a wait is shown as %q", p)
			}

			if strings.Contains(p, "uploading") {
				uploads = append(uploads, p)
			}
		}

		// One percent a second: a change each ten.
		if len(uploads) < 3 || len(uploads) > 6 || uploads[0] != "PROVISIONING: uploading Talos 1.13.5: 1 %" {
			t.Errorf("shown %q", uploads)
		}
	})
}

// A start that does not fit is no failure: the rack's own words and its request
// ID stand on the page, the daemon tries again by itself and less often.
func TestAStartThatDoesNotFitSaysSoAndGoesOn(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.start()
		b.ask("talos-workers-first1", class("project: demo\ncpus: 2"))
		b.untilStage("talos-workers-first1", stageProvisioned)

		b.ask(theRequest, class("project: demo\ncpus: 2"))
		b.until("the second to say why", func() bool {
			st := b.status(theRequest)

			return st.GetStage() == omnispecs.MachineRequestStatusSpec_PROVISIONING && strings.Contains(st.GetStatus(), "vCPU Limit Exceeded")
		})

		if got := b.status(theRequest); got.GetStatus() != got.GetError() || !strings.HasPrefix(got.GetStatus(), "starting the instance: ") {
			t.Errorf("the page says %q, the error is %q", got.GetStatus(), got.GetError())
		}

		before := b.sim.CallCount("instance_start")
		shown := b.pages(theRequest, func() func(*omnispecs.MachineRequestStatusSpec) bool {
			until := time.Now().Add(20 * time.Minute)

			return func(*omnispecs.MachineRequestStatusSpec) bool { return time.Now().After(until) }
		}())

		for _, p := range shown {
			if !strings.Contains(p, "vCPU Limit Exceeded") || !strings.HasPrefix(p, "PROVISIONING") {
				t.Errorf("the page flips to %q", p)
			}
		}

		if n := b.sim.CallCount("instance_start") - before; n < 9 || n > 14 {
			t.Errorf("%d starts in twenty minutes", n)
		}

		b.remove("talos-workers-first1")
		b.untilReleased("talos-workers-first1")
		b.untilStage(theRequest, stageProvisioned)

		if n := b.sim.CallCount("instance_create"); n != 2 {
			t.Errorf("%d creates for two machines", n)
		}
	}, func(s *setup) { s.rack.Quota = simrack.Quota{CPUs: 3} })
}

// Storage is charged at the create already: the same holds there, and nothing
// is left of an attempt that was refused.
func TestACreateThatDoesNotFitSaysSoAndGoesOn(t *testing.T) {
	t.Parallel()

	bubble(t, func(_ *testing.T, b *bench) {
		b.start()
		b.ask("talos-workers-first1")
		b.untilStage("talos-workers-first1", stageProvisioned)
		b.ask(theRequest)
		b.until("the second to say why", func() bool {
			st := b.status(theRequest)

			return st.GetStage() == omnispecs.MachineRequestStatusSpec_PROVISIONING &&
				strings.HasPrefix(st.GetStatus(), "creating the instance: ") && strings.Contains(st.GetStatus(), "Storage Limit Exceeded")
		})
		b.wantLeft(1, 1)
		b.remove("talos-workers-first1")
		b.untilReleased("talos-workers-first1")
		b.untilStage(theRequest, stageProvisioned)
		b.wantLeft(1, 1)
	}, func(s *setup) { s.rack.Quota = simrack.Quota{Storage: 19 * gib} })
}

// What a person must mend is FAILED with the reason, tried again each minute,
// and goes on by itself once mended. The log has it once.
func TestAMendedFailureGoesOnByItself(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		const reason = "Talos 1.13.5 is not offered by the factory: choose another version"

		b.images.answers(func(int, image.Want) (image.Status, error) { return image.Status{}, &image.MendError{Reason: reason} })
		b.start()
		b.ask(theRequest)
		b.untilStage(theRequest, stageFailed)
		b.pass(10 * time.Minute)

		if got := b.status(theRequest); got.GetStage() != stageFailed || got.GetError() != reason {
			t.Errorf("after ten minutes it is %s: %q", got.GetStage(), got.GetError())
		}

		asked, _ := b.images.seen()
		if len(asked) < 10 || len(asked) > 14 {
			t.Errorf("asked %d times in ten minutes", len(asked))
		}

		if loud := b.logged(zapcore.WarnLevel); len(loud) != 1 {
			t.Errorf("logged\n%s", text(loud))
		}

		b.images.answers(func(int, image.Want) (image.Status, error) { return b.ready(b.talosImage), nil })
		b.untilStage(theRequest, stageProvisioned)
	})
}

// A healthy run logs nothing at warn or above, with several requests waiting
// for their image and their turn, and no step more than once at info.
func TestAHealthyRunIsQuiet(t *testing.T) {
	t.Parallel()

	const n = 3

	bubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		b.images.answers(func(int, image.Want) (image.Status, error) {
			if done := time.Since(began) / (300 * time.Millisecond); done < 100 {
				return image.Status{Reason: fmt.Sprintf("uploading Talos 1.13.5: %d %%", done), RetryIn: 2 * time.Second}, nil
			}

			return b.ready(b.talosImage), nil
		})

		running := b.start()

		for i := range n {
			b.ask(fmt.Sprintf("%s%d", theRequest, i))
		}

		for i := range n {
			b.untilStage(fmt.Sprintf("%s%d", theRequest, i), stageProvisioned)
		}

		for i := range n {
			b.remove(fmt.Sprintf("%s%d", theRequest, i))
		}

		for i := range n {
			b.untilReleased(fmt.Sprintf("%s%d", theRequest, i))
		}

		b.ok(running.stop())

		if loud := b.logged(zapcore.WarnLevel); len(loud) != 0 {
			t.Errorf("logged\n%s", text(loud))
		}

		counts := map[string]int{}
		for _, e := range b.logged(zapcore.InfoLevel) {
			counts[e.Message]++
		}

		for message, times := range counts {
			if times > n && !strings.HasPrefix(message, "removing the machine: ") {
				t.Errorf("%q was logged %d times for %d requests", message, times, n)
			}
		}
	})
}

// A panic in a step is a failure like any: Omni shows one line, the log has the
// stack once, and other requests are served.
func TestAPanicInAStepIsAFailureInOneLine(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.images.answers(func(_ int, w image.Want) (image.Status, error) {
			if w.Identity.Talos == "1.13.4" {
				panic("a bug")
			}

			return b.ready(b.talosImage), nil
		})
		b.start()
		b.ask(theRequest, func(s *omnispecs.MachineRequestSpec) { s.TalosVersion = "1.13.4" })
		b.untilStage(theRequest, stageFailed)

		if got := b.status(theRequest).GetError(); got != `internal error in step "image": please report it` {
			t.Errorf("the request says %q", got)
		}

		b.ask("talos-workers-well01")
		b.untilStage("talos-workers-well01", stageProvisioned)
		b.pass(10 * time.Minute)

		panics := slices.DeleteFunc(b.logged(zapcore.ErrorLevel), func(e entry) bool { return e.Message != "step panicked" })
		if len(panics) != 1 || !strings.Contains(text(panics), "waits_test.go") {
			t.Errorf("logged\n%s", text(panics))
		}
	})
}

// While Omni can not register the schematic nothing is made, and the page says
// what is awaited.
func TestASchematicThatCanNotBeRegisteredIsAwaited(t *testing.T) {
	t.Parallel()

	bubble(t, func(t *testing.T, b *bench) {
		b.schematics.set("", errors.New("rpc error: code = Unavailable desc = the image factory answered\n 503"))
		b.start()
		b.ask(theRequest)
		b.until("the request to say so", func() bool {
			st := b.status(theRequest)

			return st.GetStage() == omnispecs.MachineRequestStatusSpec_PROVISIONING &&
				st.GetStatus() == "registering the schematic through Omni: the image factory answered 503"
		})

		if b.stored(theRequest).TypedSpec().Value.GetPlan() != nil {
			t.Error("a plan without its image was stored")
		}

		b.schematics.set("", nil)
		b.untilStage(theRequest, stageProvisioned)
	})
}
