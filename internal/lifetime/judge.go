package lifetime

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Image is an image of ours.
type Image struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	// Project is the name of the project that it is in, ProjectID its ID; empty for
	// the silo.
	Project   string `json:"project,omitempty"`
	ProjectID string `json:"project_id,omitempty"`

	SizeBytes  uint64 `json:"size_bytes"`
	Talos      string `json:"talos"`
	Schematic  string `json:"schematic"`
	Arch       string `json:"arch"`
	SecureBoot bool   `json:"secure_boot"`

	Created time.Time `json:"created"`
	// LastUsed is nil if no daemon has looked at it yet.
	LastUsed *time.Time `json:"last_used,omitempty"`
	// UsedBy names what uses it: disks, machine requests and uploads.
	UsedBy []string `json:"used_by"`
	// Kept is why it stays, in one line; empty if it may be removed.
	Kept string `json:"kept,omitempty"`

	mark naming.Mark
}

func (i Image) fields() []zap.Field {
	f := []zap.Field{
		zap.String("oxide.image.id", i.ID), zap.String("oxide.image.name", i.Name), zap.String("oxide.project.id", i.ProjectID),
		zap.String("talos.version", i.Talos), zap.String("talos.schematic", i.Schematic),
	}

	if i.LastUsed != nil {
		f = append(f, zap.Time("last_used", *i.LastUsed))
	}

	return f
}

// judge finds our images and why each is kept, the newest of each place first.
func (l *Lifetime) judge(s *look, now time.Time) []Image {
	var all []Image

	for _, p := range s.places {
		var here []Image

		for i := range p.images {
			if found, ok := l.describe(s, p, &p.images[i]); ok {
				here = append(here, found)
			}
		}

		slices.SortFunc(here, func(a, b Image) int {
			return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
		})

		for n := range here {
			here[n].Kept = l.kept(here[n], n, now)
		}

		all = append(all, here...)
	}

	return all
}

func (l *Lifetime) describe(s *look, p place, img *oxide.Image) (Image, bool) {
	mark, ok := naming.Parse(img.Description)
	if !ok || mark.Kind != naming.KindImage || mark.Owner != l.cfg.Owner || mark.Provider != l.cfg.Provider {
		return Image{}, false
	}

	i := Image{
		Name: string(img.Name), ID: img.Id, Project: p.name, ProjectID: p.id, SizeBytes: uint64(img.Size),
		Talos: mark.Image.Talos, Schematic: mark.Image.Schematic, Arch: mark.Image.Arch, SecureBoot: mark.Image.SecureBoot,
		UsedBy: s.users(mark, img.Id), mark: mark,
	}

	if img.TimeCreated != nil {
		i.Created = *img.TimeCreated
	}

	if u, ok := s.uses[img.Id]; ok {
		i.LastUsed = &u.At
	}

	return i, true
}

// users are what uses an image, wherever it is.
func (s *look) users(mark naming.Mark, imageID string) []string {
	users := []string{}

	for _, d := range s.disks[imageID] {
		users = append(users, "disk "+d)
	}

	for _, w := range s.wants {
		if w.wants(mark, imageID) {
			users = append(users, "request "+w.RequestID)
		}
	}

	if s.scratch[mark.Key] {
		users = append(users, "an upload")
	}

	for _, r := range s.runs {
		for _, u := range r.Uploads {
			if mark.IsImage(u.Identity) {
				users = append(users, "the upload of run "+r.ID)
			}
		}
	}

	slices.Sort(users)

	return slices.Compact(users)
}

func (w Want) wants(mark naming.Mark, imageID string) bool {
	switch {
	case w.ImageID == imageID:
		return true
	case w.Identity != nil:
		return mark.IsImage(*w.Identity)
	default:
		return w.Talos == "" || w.Talos == mark.Image.Talos
	}
}

// kept says why an image stays; newer is the number of newer ones of ours in its
// place.
func (l *Lifetime) kept(i Image, newer int, now time.Time) string {
	k := l.cfg.Keep

	switch {
	case len(i.UsedBy) > 0:
		return "in use"
	case i.ProjectID == "" && !k.Silo:
		return "images of the silo are kept"
	case k.For == Forever:
		return "unused images are kept"
	case newer < k.Newest:
		return fmt.Sprintf("one of the newest %d", k.Newest)
	case k.For > 0 && i.LastUsed == nil:
		return "nobody knows yet when it was last used"
	case k.For > 0 && (now.Sub(*i.LastUsed) < k.For || i.LastUsed.After(now)):
		return fmt.Sprintf("used within %s", days(k.For))
	default:
		return ""
	}
}

func days(d time.Duration) string {
	if d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}

	return d.String()
}
