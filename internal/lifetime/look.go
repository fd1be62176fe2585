package lifetime

import (
	"context"
	"slices"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// place is the silo or a project with its images.
type place struct {
	id, name string // empty for the silo
	images   []oxide.Image
}

// look is what Omni wants and then the rack, each listed completely.
type look struct {
	wants []Want
	runs  []image.RunInfo
	uses  map[string]Use

	places []place
	disks  map[string][]string // names of disks by the ID of the image that they stem from
	// scratch are the keys of the images that are being brought.
	scratch map[string]bool
	// whole says that no project of the silo is missing; unread are those that the
	// token may not look into.
	whole      bool
	siloHidden bool
	unread     []string
}

// hidden says that the token may not see something.
func hidden(err error) bool {
	c := rack.ClassOf(err)

	return c == rack.ClassForbidden || c == rack.ClassGone
}

// look takes a look. Its error means that nothing may be concluded.
func (l *Lifetime) look(ctx context.Context) (*look, error) {
	s := &look{uses: map[string]Use{}, disks: map[string][]string{}, scratch: map[string]bool{}}

	if err := l.readOmni(ctx, s); err != nil {
		return nil, err
	}

	silo, err := l.cfg.Rack.ListImages(ctx, "")

	switch {
	case err == nil:
		s.places = append(s.places, place{images: silo})
	case hidden(err):
		s.siloHidden = true
	default:
		return nil, err
	}

	projects, err := l.projects(ctx, s)
	if err != nil {
		return nil, err
	}

	for i := range projects {
		if err := l.readProject(ctx, s, &projects[i]); err != nil {
			return nil, err
		}
	}

	return s, nil
}

func (l *Lifetime) readOmni(ctx context.Context, s *look) error {
	var err error

	if s.wants, err = l.cfg.Omni.Wants(ctx); err != nil {
		return err
	}

	if s.runs, err = l.cfg.Omni.ImportRuns(ctx); err != nil {
		return err
	}

	uses, err := l.cfg.Omni.ImageUses(ctx)
	if err != nil {
		return err
	}

	for _, u := range uses {
		s.uses[u.ImageID] = u
	}

	return nil
}

// projects are all of the silo, or those that Omni leads to for a token that may
// not list them.
func (l *Lifetime) projects(ctx context.Context, s *look) ([]oxide.Project, error) {
	all, err := l.cfg.Rack.ListProjects(ctx)
	if err == nil {
		s.whole = true

		return all, nil
	}

	if !hidden(err) {
		return nil, err
	}

	names, err := l.cfg.Omni.Places(ctx)
	if err != nil {
		return nil, err
	}

	names = append(names, l.cfg.Projects...)
	for _, u := range s.uses {
		names = append(names, u.ProjectID)
	}

	slices.Sort(names)

	for _, name := range slices.Compact(names) {
		if name == "" {
			continue
		}

		p, err := l.cfg.Rack.ViewProject(ctx, name)

		switch {
		case hidden(err):
			s.unread = append(s.unread, name)
		case err != nil:
			return nil, err
		case !slices.ContainsFunc(all, func(other oxide.Project) bool { return other.Id == p.Id }):
			all = append(all, *p)
		}
	}

	return all, nil
}

func (l *Lifetime) readProject(ctx context.Context, s *look, p *oxide.Project) error {
	images, err := l.cfg.Rack.ListImages(ctx, p.Id)

	var disks []oxide.Disk
	if err == nil {
		disks, err = l.cfg.Rack.ListDisks(ctx, p.Id)
	}

	switch {
	case hidden(err):
		s.unread = append(s.unread, string(p.Name))

		return nil
	case err != nil:
		return err
	}

	s.places = append(s.places, place{id: p.Id, name: string(p.Name), images: images})

	for _, d := range disks {
		if d.ImageId != "" {
			s.disks[d.ImageId] = append(s.disks[d.ImageId], string(d.Name))
		}

		if mark, ok := naming.Parse(d.Description); ok && mark.Kind == naming.KindScratch {
			s.scratch[mark.Key] = true
		}
	}

	return nil
}

// gone says that the look proves the image of a record to be gone.
func (s *look) gone(u Use) bool {
	known := s.whole

	for _, p := range s.places {
		known = known || p.id == u.ProjectID

		if slices.ContainsFunc(p.images, func(i oxide.Image) bool { return i.Id == u.ImageID }) {
			return false
		}
	}

	// An image moves to the silo, and one that the token may not see is not gone.
	return known && !s.siloHidden && len(s.unread) == 0
}
