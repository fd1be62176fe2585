package image_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// Where an image of the wanted name is before anybody asks.
const (
	nowhere        = "nowhere"
	oursInSilo     = "ours in the silo"
	oursInProject  = "ours in the project"
	othersInSilo   = "another provider's in the silo"
	othersThere    = "another provider's in the project"
	foreignInSilo  = "a foreign one in the silo"
	foreignThere   = "a foreign one in the project"
	halfAnIdentity = "one whose schematic begins alike in the project"
)

// sharing is one case: where new images are to be kept, what the token may do,
// and what is there.
type sharing struct {
	scope             image.Scope
	promotes, lists   bool
	there             string
	place             string // where the image must be used in the end, or refused
	uploads, promoted int
}

const refusedScope = "refused"

// expect is what must come of it.
func (s sharing) expect() sharing {
	inSilo := s.there == oursInSilo || s.there == othersInSilo

	// What is in the silo serves all, if the token sees it.
	if inSilo && s.lists {
		s.place = ""

		return s
	}

	if s.scope == image.ScopeSilo && !s.lists {
		s.place = refusedScope

		return s
	}

	toSilo := s.scope == image.ScopeSilo || s.scope == image.ScopeAuto && s.lists

	switch s.there {
	case oursInProject:
	case othersThere:
		// It is used where it is, and is not ours to promote.
		if s.scope != image.ScopeSilo {
			s.place = project

			return s
		}

		s.uploads = 1
	default:
		s.uploads = 1
	}

	switch {
	case !toSilo:
		s.place = project
	case s.promotes:
		s.place, s.promoted = "", 1
	case s.scope == image.ScopeSilo:
		s.place = refusedScope
	default:
		s.place = project
	}

	return s
}

// put makes what is there before.
func (s sharing) put(w *world) *fakeImage {
	if s.there == nowhere {
		return nil
	}

	id := identity()
	in, mark := project, naming.Mark{
		Owner: owner, Provider: "oxide", Run: "01234567", Kind: naming.KindImage, Key: id.Key(), Image: id.Mark(),
	}

	if strings.HasSuffix(s.there, "silo") {
		in = ""
	}

	description := mark.Describe("Talos")

	switch {
	case s.there == halfAnIdentity:
		id.Schematic = id.Schematic[:12] + strings.Repeat("0", 52)
		mark.Key, mark.Image = id.Key(), id.Mark()
		description = mark.Describe("Talos")
	case strings.HasPrefix(s.there, "another"):
		mark.Owner, mark.Provider = strings.Repeat("z", 26), "another"
		description = mark.Describe("Talos")
	case strings.HasPrefix(s.there, "a foreign"):
		description = "Somebody's own."
	}

	return w.rack.addImage(in, naming.Image(identity()), description, 2<<30, nil)
}

// Invariant: for each scope, right of the token, and image that is there already:
// at most one upload, the image where it belongs, and nothing of others touched.
func TestEveryScopeWithEveryRightAndImage(t *testing.T) {
	t.Parallel()

	for _, scope := range []image.Scope{image.ScopeAuto, image.ScopeSilo, image.ScopeProject} {
		for _, there := range []string{
			nowhere, oursInSilo, oursInProject, othersInSilo, othersThere, foreignInSilo, foreignThere, halfAnIdentity,
		} {
			for rights := range 4 {
				s := sharing{scope: scope, promotes: rights&1 != 0, lists: rights&2 != 0, there: there}.expect()

				t.Run(fmt.Sprintf("%s, %s, promotes %t, lists %t", scope, there, s.promotes, s.lists), func(t *testing.T) {
					t.Parallel()
					s.play(t)
				})
			}
		}
	}
}

func (s sharing) play(t *testing.T) {
	t.Helper()

	w := newWorld()

	if !s.promotes {
		w.rack.faults["promote image"] = times(1, 1<<20, errOf(rack.ClassForbidden, 403))
	}

	if !s.lists {
		w.rack.faults["list silo"] = times(1, 1<<20, errOf(rack.ClassForbidden, 403))
	}

	synctest.Test(t, func(t *testing.T) {
		before := s.put(w)
		was := ""

		if before != nil {
			was = before.Description
		}

		m, stop := w.start(t, "0a1b2c3d", nil)
		wanted := want()
		wanted.Scope = s.scope

		if s.place == refusedScope {
			if said := mended(t, m, wanted); !strings.Contains(said, "image_scope: silo") {
				t.Errorf("it says %q", said)
			}
		} else {
			got := until(t, m, wanted, 5*time.Minute)
			if img := w.rack.images[got.ImageID]; img == nil || img.ProjectId != s.place {
				t.Errorf("image %+v, must be in %q", img, s.place)
			}

			if got.ImageID != "" && before != nil && s.uploads == 0 && got.ImageID != before.Id {
				t.Error("another image is used than the one that is there")
			}
		}

		settle(t, w, time.Minute)
		stop()

		if before != nil && (w.rack.images[before.Id] == nil || w.rack.images[before.Id].Description != was) {
			t.Error("what was there before is gone, or changed")
		}
	})

	if got := w.count("open"); got > 1 || s.place != refusedScope && got != s.uploads {
		t.Errorf("%d uploads, must be %d", got, s.uploads)
	}

	if got := w.count("promote image"); s.promotes && got != s.promoted || s.scope == image.ScopeProject && got != 0 {
		t.Errorf("%d promotions, must be %d", got, s.promoted)
	}
}
