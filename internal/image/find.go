package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// lookup is what complete lists said about an image at one time.
type lookup struct {
	// taken are the names in use, where a new image must not have the same.
	taken map[string]bool
	// unpromoted are images of ours in a project although the silo is the place.
	unpromoted []oxide.Image
}

// look lists the silo's images and then the projects', and remembers the image
// if it is there. Images of a project that wait to be promoted are answered and
// not remembered.
func (m *Manager) look(ctx context.Context, id naming.ImageIdentity, projects []string, to aim) (*lookup, error) {
	l := &lookup{taken: map[string]bool{}}

	silo, err := m.listSilo(ctx, id, to)
	if err != nil {
		return nil, err
	}

	if img, ok := l.match(silo, id); ok {
		return l, m.take(ctx, id, "", img)
	}

	// Whoever does not see the silo's images would not find it there again.
	to.silo = to.silo && (to.must || !m.siloHidden())

	for _, p := range projects {
		images, err := m.cfg.Rack.ListImages(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("looking for the image: %w", err)
		}

		img, ok := l.match(images, id)

		switch {
		case !ok:
		case to.silo && m.ours(img.Description, naming.KindImage):
			l.unpromoted = append(l.unpromoted, img)
		default:
			if err := m.take(ctx, id, p, img); err != nil {
				return nil, err
			}
		}
	}

	return l, nil
}

// take remembers an image that a list has shown. One that somebody could not use
// is read by its ID first, as its users do.
func (m *Manager) take(ctx context.Context, id naming.ImageIdentity, place string, img oxide.Image) error {
	m.mu.Lock()
	doubted := m.doubted[img.Id]
	m.mu.Unlock()

	if doubted {
		_, err := m.cfg.Rack.ViewImage(ctx, img.Id)
		if rack.ClassOf(err) == rack.ClassGone {
			return unusable(id)
		}

		if err != nil {
			return fmt.Errorf("looking for the image: %w", err)
		}

		m.mu.Lock()
		delete(m.doubted, img.Id)
		m.mu.Unlock()
	}

	m.remember(id, place, img)

	return nil
}

// listSilo lists the silo's images, none if the token may not and the image can
// be kept elsewhere.
func (m *Manager) listSilo(ctx context.Context, id naming.ImageIdentity, to aim) ([]oxide.Image, error) {
	if m.siloHidden() && !to.must {
		return nil, nil
	}

	images, err := m.cfg.Rack.ListImages(ctx, "")

	switch {
	case rack.ClassOf(err) == rack.ClassForbidden && to.must:
		return nil, refusedSilo(id)
	case rack.ClassOf(err) == rack.ClassForbidden:
		m.hideSilo(err)

		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("looking for the image in the silo: %w", err)
	}

	return images, nil
}

// match picks the image with the identity, whoever made it: the oldest, so
// that all processes pick the same one. Whatever has no mark, or another
// identity, is foreign however it is named.
func (l *lookup) match(images []oxide.Image, id naming.ImageIdentity) (oxide.Image, bool) {
	var matching []oxide.Image

	for _, img := range images {
		l.taken[string(img.Name)] = true

		if mark, ok := naming.Parse(img.Description); ok && mark.IsImage(id) {
			matching = append(matching, img)
		}
	}

	if len(matching) == 0 {
		return oxide.Image{}, false
	}

	return slices.MinFunc(matching, func(a, b oxide.Image) int { return created(a).Compare(created(b)) }), true
}

func created(img oxide.Image) time.Time {
	if img.TimeCreated == nil {
		return time.Time{}
	}

	return *img.TimeCreated
}

// findIn looks for the image in one place only.
func (m *Manager) findIn(ctx context.Context, id naming.ImageIdentity, place string) (oxide.Image, bool, error) {
	images, err := m.cfg.Rack.ListImages(ctx, place)
	if err != nil {
		return oxide.Image{}, false, fmt.Errorf("looking for the image: %w", err)
	}

	img, ok := (&lookup{taken: map[string]bool{}}).match(images, id)

	return img, ok, nil
}

// ours tells whether a description's mark names this owner and provider.
func (m *Manager) ours(description string, kind naming.Kind) bool {
	_, ok := m.mark(description, kind)

	return ok
}

// mark parses a description and answers its mark if it names this owner and
// provider.
func (m *Manager) mark(description string, kind naming.Kind) (naming.Mark, bool) {
	mark, ok := naming.Parse(description)

	return mark, ok && mark.Owner == m.cfg.Owner && mark.Provider == m.cfg.Provider && mark.Kind == kind
}

// errForeign is an object that has a name or ID of ours without our mark.
var errForeign = errors.New("the object does not bear our mark")
