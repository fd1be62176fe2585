package image_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

func imageMark(change func(*naming.Mark)) string {
	m := naming.Mark{
		Owner: owner, Provider: "oxide", Run: deadRun,
		Kind: naming.KindImage, Key: identity().Key(), Image: identity().Mark(),
	}
	if change != nil {
		change(&m)
	}

	return m.Describe("Talos.")
}

// Invariant: a token that may not use the silo gets its images in the project,
// found out once.
func TestATokenWithoutTheSilo(t *testing.T) {
	t.Parallel()

	for _, op := range []string{"list silo", "promote image"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()

			w := newWorld()
			w.rack.faults[op] = times(1, 1000, errOf(rack.ClassForbidden, 403))

			test(t, w, func(t *testing.T, m *image.Manager) {
				s := until(t, m, want(), time.Minute)
				if img := one(t, w); img.Id != s.ImageID || img.ProjectId != project {
					t.Errorf("%+v for %+v", s, img.Image)
				}

				second := image.Want{Identity: identity(), ProjectID: other}
				if s2 := until(t, m, second, time.Minute); s2.ImageID == s.ImageID || len(w.rack.imageList()) != 2 {
					t.Errorf("the other project got %+v", s2)
				}

				settle(t, w, time.Minute)
			})

			if w.count(op) != 1 || w.count("open") != 2 {
				t.Errorf("calls %v", w.all())
			}
		})
	}
}

// Invariant: an image that was not promoted before the process ended is
// promoted by the next, without another upload.
func TestAnImageThatWaitsForItsPromotion(t *testing.T) {
	t.Parallel()

	w := newWorld()
	img := w.rack.addImage(project, naming.Image(identity()), imageMark(nil), 1<<30, nil)

	test(t, w, func(t *testing.T, m *image.Manager) {
		if s := until(t, m, want(), time.Minute); s.ImageID != img.Id || img.ProjectId != "" {
			t.Errorf("%+v, %+v", s, img)
		}
	})

	if w.count("open") != 0 {
		t.Errorf("calls %v", w.all())
	}
}

// Invariant: when the silo gets the image first, it is used and ours removed.
func TestTheSiloHasTheImageBeforeOurPromotion(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["create image"] = func(int) (bool, error) {
		w.rack.addImage("", naming.Image(identity()), imageMark(func(m *naming.Mark) { m.Provider = "other" }), 1<<30, nil)

		return true, nil
	}

	test(t, w, func(t *testing.T, m *image.Manager) {
		s := until(t, m, want(), time.Minute)
		if img := one(t, w); img.Id != s.ImageID || img.ProjectId != "" {
			t.Errorf("%+v for %+v", s, img.Image)
		}

		settle(t, w, time.Minute)
	})
}

// Invariant: an image without a valid mark, or of another identity, is neither
// used nor touched, and ours gets another name.
func TestAForeignImageHasTheName(t *testing.T) {
	t.Parallel()

	descriptions := []string{
		"Talos", imageMark(nil) + "x",
		imageMark(func(m *naming.Mark) { m.Image = new(*m.Image); m.Image.SecureBoot = true }),
		imageMark(func(m *naming.Mark) { m.Key = "00000000000000000000000000000000" }),
	}

	for _, place := range []string{"", project} {
		for _, description := range descriptions {
			w := newWorld()
			foreign := w.rack.addImage(place, naming.Image(identity()), description, 1<<30, nil)

			test(t, w, func(t *testing.T, m *image.Manager) {
				s := until(t, m, want(), time.Minute)

				img := w.rack.images[s.ImageID]
				if img == nil || img == foreign || img.Name == foreign.Name || img.ProjectId != "" || w.rack.images[foreign.Id] == nil {
					t.Errorf("%q in %q: %+v", description, place, s)
				}

				settle(t, w, time.Minute)
			})
		}
	}
}

// Invariant: so it is when the name is taken while we upload.
func TestAForeignImageTakesTheNameMeanwhile(t *testing.T) {
	t.Parallel()

	for _, place := range []string{"", project} {
		w := newWorld()
		w.rack.faults["finalize"] = func(int) (bool, error) {
			w.rack.addImage(place, naming.Image(identity()), "Talos", 1<<30, nil)

			return true, nil
		}

		test(t, w, func(t *testing.T, m *image.Manager) {
			s := until(t, m, want(), time.Minute)
			if img := w.rack.images[s.ImageID]; len(w.rack.imageList()) != 2 || img.Description == "Talos" {
				t.Errorf("%+v", s)
			}

			settle(t, w, time.Minute)
		})

		if w.count("open") != 1 || w.count("delete image") != 0 {
			t.Errorf("calls %v", w.all())
		}
	}
}

// Invariant: a promotion that fails otherwise leaves a usable image.
func TestAPromotionThatFails(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["promote image"] = times(1, 100, errOf(rack.ClassInternal, 500))

	synctest.Test(t, func(t *testing.T) {
		m, stop := w.start(t, "0a1b2c3d", nil)
		if s := until(t, m, want(), 2*time.Minute); s.ImageID != one(t, w).Id {
			t.Error(s)
		}

		settle(t, w, time.Minute)
		stop()
	})
}
