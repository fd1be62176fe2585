package image_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// mended asks each second until the answer is that a person must mend something.
func mended(t *testing.T, m *image.Manager, w image.Want) string {
	t.Helper()

	for range 300 {
		_, err := m.Ask(t.Context(), w)
		if mend, ok := errors.AsType[*image.MendError](err); ok {
			return mend.Reason
		}

		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)
	}

	t.Fatal("nothing to be mended")

	return ""
}

// Invariant: one upload puts an image where the class's scope, else the
// daemon's, and the token's role let it be kept; a scope that the role does not
// allow is told, and heals with the role without another upload.
func TestWhereAnImageIsKept(t *testing.T) {
	t.Parallel()

	const silo, inProject, refused = "silo", "project", "refused"

	for _, c := range []struct {
		denied           string // the call that the role does not allow
		daemon, class    image.Scope
		kept             string
		uploadsWhenWrong int
	}{
		{"", "", "", silo, 0},
		{"", "", image.ScopeAuto, silo, 0},
		{"", image.ScopeAuto, image.ScopeSilo, silo, 0},
		{"", image.ScopeAuto, image.ScopeProject, inProject, 0},
		{"", image.ScopeProject, image.ScopeAuto, inProject, 0},
		{"", image.ScopeProject, image.ScopeSilo, silo, 0},
		{"", image.ScopeSilo, image.ScopeAuto, silo, 0},
		{"", image.ScopeSilo, image.ScopeProject, inProject, 0},
		{"promote image", image.ScopeAuto, "", inProject, 0},
		{"promote image", image.ScopeAuto, image.ScopeProject, inProject, 0},
		{"promote image", image.ScopeAuto, image.ScopeSilo, refused, 1},
		{"promote image", image.ScopeSilo, "", refused, 1},
		{"promote image", image.ScopeSilo, image.ScopeProject, inProject, 0},
		{"list silo", image.ScopeAuto, "", inProject, 0},
		{"list silo", image.ScopeAuto, image.ScopeProject, inProject, 0},
		{"list silo", image.ScopeAuto, image.ScopeSilo, refused, 0},
		{"list silo", image.ScopeSilo, image.ScopeProject, inProject, 0},
	} {
		t.Run(strings.Join([]string{c.denied, string(c.daemon), string(c.class)}, ","), func(t *testing.T) {
			t.Parallel()

			w := newWorld()
			if c.denied != "" {
				w.rack.faults[c.denied] = times(1, 1<<20, errOf(rack.ClassForbidden, 403))
			}

			synctest.Test(t, func(t *testing.T) {
				m, stop := w.start(t, "0a1b2c3d", func(cfg *image.Config) { cfg.Scope = c.daemon })
				wanted := want()
				wanted.Scope = c.class

				if c.kept == refused {
					if said := mended(t, m, wanted); !strings.Contains(said, "image_scope: silo") || w.count("open") != c.uploadsWhenWrong {
						t.Errorf("%d uploads, and it says %q", w.count("open"), said)
					}

					w.rack.set(func() { delete(w.rack.faults, c.denied) })
				}

				s := untilMended(t, m, wanted)
				if img := one(t, w); img.Id != s || (img.ProjectId == "") != (c.kept != inProject) {
					t.Errorf("the image is in %q", img.ProjectId)
				}

				settle(t, w, time.Minute)
				stop()
			})

			if w.count("open") != 1 || c.kept == inProject && c.denied == "" && w.count("promote image") != 0 {
				t.Errorf("calls %v", w.all())
			}
		})
	}
}

// untilMended asks until the image is ready, whatever there is to mend before.
func untilMended(t *testing.T, m *image.Manager, w image.Want) string {
	t.Helper()

	for range 900 {
		s, err := m.Ask(t.Context(), w)
		if _, mend := errors.AsType[*image.MendError](err); err != nil && !mend {
			t.Fatal(err)
		}

		if s.Ready {
			return s.ImageID
		}

		time.Sleep(time.Second)
	}

	t.Fatal("never ready")

	return ""
}

// Invariant: an image of the silo serves everybody, and whoever keeps images in
// projects makes none beside it.
func TestTheSilosImageServesAllScopes(t *testing.T) {
	t.Parallel()

	w := newWorld()

	test(t, w, func(t *testing.T, m *image.Manager) {
		first := until(t, m, want(), time.Minute)

		for _, s := range []image.Scope{image.ScopeProject, image.ScopeSilo, image.ScopeAuto} {
			if got := until(t, m, image.Want{Identity: identity(), ProjectID: other, Scope: s}, time.Minute); got.ImageID != first.ImageID {
				t.Errorf("scope %s got another image", s)
			}
		}

		settle(t, w, time.Minute)
	})

	if w.count("open") != 1 {
		t.Errorf("%d uploads", w.count("open"))
	}
}

// Invariant: a token without silo viewer sees the images of its project in lists
// and not by their ID. That is told, and is no image that has vanished over and
// over.
func TestAnImageThatTheTokenMayListAndNotUse(t *testing.T) {
	t.Parallel()

	w := newWorld()
	w.rack.faults["list silo"] = times(1, 1<<20, errOf(rack.ClassForbidden, 403))
	w.rack.faults["view image"] = times(1, 1<<20, errOf(rack.ClassGone, 404))

	test(t, w, func(t *testing.T, m *image.Manager) {
		s := until(t, m, want(), time.Minute)
		m.Forget(s.ImageID) // as the step does when the disk's creation is answered with 404

		if said := mended(t, m, want()); !strings.Contains(said, "silo viewer") {
			t.Errorf("it says %q", said)
		}

		w.rack.set(func() { delete(w.rack.faults, "view image") })

		if id := untilMended(t, m, want()); id != s.ImageID {
			t.Errorf("another image %s", id)
		}

		settle(t, w, time.Minute)
	})

	if w.count("open") != 1 {
		t.Errorf("%d uploads", w.count("open"))
	}
}
