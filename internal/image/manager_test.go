package image_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

const zapLevel = zap.InfoLevel

// Invariant: an image that is asked for ends up in the silo with the factory's
// bytes and the full identity, and nothing else is left.
func TestAnImageIsImportedAndPromoted(t *testing.T) {
	t.Parallel()

	w := newWorld()
	test(t, w, func(t *testing.T, m *image.Manager) {
		s := until(t, m, want(), time.Minute)
		img := one(t, w)

		if s.ImageID != img.Id || s.SizeBytes != 1<<30 {
			t.Errorf("status %+v for image %+v", s, img.Image)
		}

		if img.ProjectId != "" || string(img.Name) != naming.Image(identity()) || img.Os != "Talos Linux" || img.Version != "1.13.5" {
			t.Errorf("image %+v", img.Image)
		}

		if mark, ok := naming.Parse(img.Description); !ok || !mark.IsImage(identity()) || mark.Owner != owner || mark.Provider != "oxide" {
			t.Errorf("description %q", img.Description)
		}

		checkContent(t, img, w.source.data)
		settle(t, w, time.Minute)

		// 7 chunks, of which the third and the sixth are zeros.
		if n := w.count("write"); n != 5 {
			t.Errorf("%d chunks written instead of 5", n)
		}

		if again := ask(t, m, image.Want{Identity: identity(), ProjectID: other}); again.ImageID != img.Id {
			t.Errorf("another project got %+v", again)
		}
	})

	ops := slices.DeleteFunc(w.all(), func(s string) bool {
		return s == "write" || strings.HasPrefix(s, "renew ") && !strings.Contains(s, project)
	})
	wantOps := []string{
		"list silo", "list images", "open", "utilization", "renew " + project, "create disk", "start", "stop", "finalize",
		"view snapshot", "create image", "promote image", "delete snapshot", "delete disk",
		"list silo", "forget 0a1b2c3d",
	}

	// The other project is served from memory, without a list.
	wantOps = slices.Delete(wantOps, len(wantOps)-2, len(wantOps)-1)
	if !slices.Equal(ops, wantOps) {
		t.Errorf("calls\n%v instead of\n%v", ops, wantOps)
	}
}

func TestAnImageThatIsThereIsUsed(t *testing.T) {
	t.Parallel()

	for _, place := range []string{"", project} {
		w := newWorld()
		mark := naming.Mark{
			Owner: strings.Repeat("z", 26), Provider: "another", Run: "01234567",
			Kind: naming.KindImage, Key: identity().Key(), Image: identity().Mark(),
		}
		img := w.rack.addImage(place, "any-name", mark.Describe("Of another provider."), 1<<31, nil)

		test(t, w, func(t *testing.T, m *image.Manager) {
			if s := ask(t, m, want()); !s.Ready || s.ImageID != img.Id || s.SizeBytes != 1<<31 {
				t.Errorf("status %+v", s)
			}
		})

		if w.count("open") != 0 || w.count("delete image") != 0 {
			t.Errorf("calls %v", w.all())
		}
	}
}

// Invariant: one upload for all who wait, and none of them waits inside Ask.
func TestTwelveAskersShareOneUpload(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.build = 3 * time.Minute

	test(t, w, func(t *testing.T, m *image.Manager) {
		var group sync.WaitGroup

		for range 12 {
			group.Go(func() {
				start := time.Now()

				if s := ask(t, m, want()); s.Ready || time.Since(start) > 0 {
					t.Errorf("%+v after %s", s, time.Since(start))
				}

				until(t, m, want(), 5*time.Minute)
			})
		}

		group.Wait()
		settle(t, w, time.Minute)
	})

	if w.count("open") != 1 || w.count("create disk") != 1 || w.count("create image") != 1 || w.count("list silo") != 1 {
		t.Errorf("calls %v", w.all())
	}
}

// Invariant: of two daemons that make the same image at once both end up with
// the winner's, and neither touches the other's scratch.
func TestTheLoserOfARaceUsesTheWinnersImage(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.build = time.Minute
	w.rack.delays["write"] = time.Second

	synctest.Test(t, func(t *testing.T) {
		m1, stop1 := w.start(t, "0a1b2c3d", nil)
		m2, stop2 := w.start(t, "4e5f6071", func(c *image.Config) {
			c.Owner, c.Provider = strings.Repeat("b", 26), "oxide-2"
		})

		var (
			group sync.WaitGroup
			ids   [2]string
		)

		for i, m := range []*image.Manager{m1, m2} {
			group.Go(func() { ids[i] = until(t, m, want(), 10*time.Minute).ImageID })
		}

		group.Wait()

		if img := one(t, w); ids[0] != img.Id || ids[1] != img.Id {
			t.Errorf("%v instead of twice %s", ids, img.Id)
		}

		settle(t, w, time.Minute)
		stop1()
		stop2()
		w.rack.checkEmpty(t)
	})
}

// Invariant: a machine never boots another schematic, however alike the IDs
// begin.
func TestSchematicsThatBeginAlikeAreTwoImages(t *testing.T) {
	t.Parallel()

	w := newWorld()
	a, b := want(), want()
	b.Identity.Schematic = a.Identity.Schematic[:12] + strings.Repeat("0", 52)

	test(t, w, func(t *testing.T, m *image.Manager) {
		first, second := until(t, m, a, time.Minute), until(t, m, b, time.Minute)
		if first.ImageID == second.ImageID || len(w.rack.imageList()) != 2 {
			t.Errorf("%+v and %+v", first, second)
		}

		settle(t, w, time.Minute)
	})
}

func TestAForgottenImageIsMadeAgain(t *testing.T) {
	t.Parallel()

	w := newWorld()
	test(t, w, func(t *testing.T, m *image.Manager) {
		first := until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)

		w.rack.set(func() { clear(w.rack.images) })

		if s := ask(t, m, want()); s.ImageID != first.ImageID {
			t.Errorf("%+v is not remembered", s)
		}

		m.Forget(first.ImageID)

		if s := until(t, m, want(), time.Minute); s.ImageID == first.ImageID {
			t.Error("the image that is gone is still answered")
		}

		settle(t, w, time.Minute)
	})
}

// Invariant: an image that nobody wants any more is not uploaded to its end,
// and one that others still want is.
func TestAJobThatNobodyAsksForIsUndone(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.pace = time.Second
	w.source.data = disk(150, 512)

	test(t, w, func(t *testing.T, m *image.Manager) {
		ask(t, m, want())
		time.Sleep(5 * time.Minute)

		if len(m.Jobs()) != 1 || m.Jobs()[0].Phase != image.PhaseUploading || m.Jobs()[0].Done == 0 {
			t.Errorf("jobs %+v", m.Jobs())
		}

		time.Sleep(6 * time.Minute)

		if len(m.Jobs()) != 0 {
			t.Errorf("jobs %+v", m.Jobs())
		}

		settle(t, w, time.Minute)

		if len(w.rack.imageList()) != 0 {
			t.Error("an image was made")
		}

		w.source.pace = 0
		until(t, m, want(), time.Minute)
		checkContent(t, one(t, w), w.source.data)
		settle(t, w, time.Minute)
	})
}

// Invariant: the line for people is steady, and shows how far the upload is.
func TestProgressIsShownSteadily(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.data = disk(61, 512)
	w.rack.delays["write"] = 8 * time.Second

	test(t, w, func(t *testing.T, m *image.Manager) {
		var (
			last    string
			changed = time.Now().Add(-time.Hour)
			lines   []string
		)

		for {
			s := ask(t, m, want())
			if s.Ready {
				break
			}

			if s.Reason != last {
				if time.Since(changed) < 10*time.Second && strings.HasPrefix(last, "uploading") &&
					strings.HasPrefix(s.Reason, "uploading") && percent(t, s.Reason) < percent(t, last)+10 {
					t.Errorf("%q so soon after %q", s.Reason, last)
				}

				last, changed = s.Reason, time.Now()
				lines = append(lines, last)
			}

			time.Sleep(time.Second)
		}

		if len(lines) < 4 || !slices.ContainsFunc(lines, func(s string) bool {
			return strings.HasPrefix(s, "uploading Talos 1.13.5 image: ") && strings.HasSuffix(s, " of 31 MiB)")
		}) {
			t.Errorf("lines %q", lines)
		}

		settle(t, w, time.Minute)
	})
}

func percent(t *testing.T, line string) int {
	t.Helper()

	var n int
	if _, err := fmt.Sscanf(line, "uploading Talos 1.13.5 image: %d %%", &n); err != nil {
		t.Fatal(line, err)
	}

	return n
}

// Invariant: nothing is made in the rack before the factory sends, its failures
// are retried with backoff, and the reason names factory, code and schematic.
func TestAFactoryThatFailsForTenMinutes(t *testing.T) {
	t.Parallel()

	w := newWorld()
	for range 6 {
		w.source.errs = append(w.source.errs, factoryError(talos.KindServer, 500))
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		ask(t, m, want())
		synctest.Wait()

		s := ask(t, m, want())
		for _, part := range []string{"factory.talos.dev", "500", identity().Schematic[:12], "next try at 00:0"} {
			if !strings.Contains(s.Reason, part) {
				t.Errorf("%q does not tell %s", s.Reason, part)
			}
		}

		time.Sleep(2 * time.Minute)

		if w.count("create disk") != 0 || w.count("open") > 6 {
			t.Errorf("calls %v", w.all())
		}

		until(t, m, want(), 20*time.Minute)
		settle(t, w, time.Minute)
	})
}

// Invariant: a factory that names a time is not asked before it, whoever waits.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()

	w := newWorld()
	e := factoryError(talos.KindRetryLater, 429)
	e.RetryAfter = 90 * time.Second
	w.source.errs = []error{e, e, e}

	test(t, w, func(t *testing.T, m *image.Manager) {
		start := time.Now()

		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { until(t, m, want(), 10*time.Minute) })
		}

		group.Wait()

		if took := time.Since(start); took < 270*time.Second || w.count("open") != 4 {
			t.Errorf("%d tries in %s", w.count("open"), took)
		}

		settle(t, w, time.Minute)
	})
}

// Invariant: an unknown schematic is told to one asker for each failed try.
func TestAnUnknownSchematicIsTold(t *testing.T) {
	t.Parallel()

	w := newWorld()
	e := factoryError(talos.KindNotFound, 404)
	w.source.errs = []error{e, e}

	test(t, w, func(t *testing.T, m *image.Manager) {
		told := 0

		for {
			s := ask(t, m, want())
			if s.Ready {
				break
			}

			if s.SchematicUnknown {
				told++
			}

			time.Sleep(time.Second)
		}

		if told != 2 {
			t.Errorf("told %d times", told)
		}

		settle(t, w, time.Minute)
	})
}

// Invariant: what only a person can mend is an error that names it, retried
// slowly and without a trace in the rack.
func TestAVersionThatIsNotOffered(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.source.errs = []error{factoryError(talos.KindVersionNotFound, 404)}

	test(t, w, func(t *testing.T, m *image.Manager) {
		s, err := m.Ask(t.Context(), want())
		for err == nil {
			time.Sleep(s.RetryIn)
			s, err = m.Ask(t.Context(), want())
		}

		if _, ok := errors.AsType[*image.MendError](err); !ok || s.RetryIn <= 0 ||
			!strings.Contains(err.Error(), "1.13.5: the factory does not offer this Talos version (404); next try at ") {
			t.Errorf("%+v, %v", s, err)
		}

		time.Sleep(4 * time.Minute)

		if w.count("open") != 1 || w.count("create disk") != 0 {
			t.Errorf("calls %v", w.all())
		}

		time.Sleep(2 * time.Minute)
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)
	})
}

// Invariant: a rack that is away for an hour costs few calls and no person.
func TestARackThatIsAway(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["list silo"] = times(1, 1_000_000, errOf(rack.ClassLost, 0))

	test(t, w, func(t *testing.T, m *image.Manager) {
		for range 60 {
			ask(t, m, want())
			time.Sleep(time.Minute)
		}

		if n := w.count("list silo"); n > 25 {
			t.Errorf("%d lists in an hour", n)
		}

		w.rack.set(func() { clear(w.rack.faults) })
		until(t, m, want(), 6*time.Minute)
		settle(t, w, time.Minute)
	})
}

// Invariant: without a record of this run nothing is made in the rack.
func TestNoScratchWithoutARecord(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.omni.set(errors.New("Omni is away"))

	test(t, w, func(t *testing.T, m *image.Manager) {
		ask(t, m, want())
		time.Sleep(time.Minute)

		if s := ask(t, m, want()); !strings.Contains(s.Reason, "Omni is away") || w.count("create disk") != 0 {
			t.Errorf("%q, calls %v", s.Reason, w.all())
		}

		w.omni.set(nil)
		until(t, m, want(), time.Minute)
		settle(t, w, time.Minute)
	})
}

func TestAskBeforeRunAndAfterIt(t *testing.T) {
	t.Parallel()

	w := newWorld()
	synctest.Test(t, func(t *testing.T) {
		if s := ask(t, image.New(image.Config{}), want()); s.Ready {
			t.Error(s)
		}

		m, stop := w.start(t, "0a1b2c3d", nil)
		stop()

		if s := ask(t, m, want()); s.Ready || len(m.Jobs()) != 0 {
			t.Error(s)
		}

		if err := m.Run(t.Context()); err == nil {
			t.Error("ran twice")
		}
	})
}

// Invariant: at most so many uploads run at once, and the others say why they
// wait.
func TestUploadsAreLimited(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.delays["write"] = 10 * time.Second

	synctest.Test(t, func(t *testing.T) {
		m, stop := w.start(t, "0a1b2c3d", func(c *image.Config) { c.Uploads = 1 })

		b := want()
		b.Identity.Talos = "1.13.6"

		ask(t, m, want())
		synctest.Wait()
		ask(t, m, b)
		synctest.Wait()

		if s := ask(t, m, b); !strings.Contains(s.Reason, "another upload") {
			t.Error(s.Reason)
		}

		until(t, m, want(), time.Hour)
		until(t, m, b, time.Hour)
		settle(t, w, time.Minute)
		stop()
	})
}
