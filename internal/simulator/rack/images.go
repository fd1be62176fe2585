package rack

// image belongs to a project, or, with an empty scope, to the silo.
type image struct {
	meta
	os, version     string
	size, blockSize int64
	layer           *layer
}

type imageView struct {
	identity
	ProjectID *string `json:"project_id"`
	OS        string  `json:"os"`
	Version   string  `json:"version"`
	Size      int64   `json:"size"`
	BlockSize int64   `json:"block_size"`
	Digest    *string `json:"digest"` // never computed
}

func viewImage(m *image) any {
	return imageView{m.identity(), orNull(m.scope), m.os, m.version, m.size, m.blockSize, nil}
}

// imageByID finds an image of any project or the silo. All go through the
// silo, so a caller with roles on projects alone sees none of them.
func (c *call) imageByID(id string) (*image, error) {
	m, found := c.s.images.get(canonicalID(id))
	if !found || !c.siloRole().atLeast(RoleViewer) {
		return nil, notFound(kindImage, id)
	}

	return m, nil
}

// findImage resolves the image of a path: by ID, by name in a project, or by
// name in the silo when no project is given. need is for project images,
// siloNeed for silo images.
func (c *call) findImage(need, siloNeed Role) (*image, error) {
	selector := c.path("image")
	if err := checkNameOrID(selector); err != nil {
		return nil, badParse("bad parameter in URL path: %v", err)
	}

	hasProject := c.query.Has("project")

	switch {
	case isUUID(selector) && hasProject:
		return nil, invalidRequest("when providing image as an ID, project should not be specified")
	case isUUID(selector):
		m, err := c.imageByID(selector)
		if err != nil {
			return nil, err
		}

		return m, c.mayImage(m, need, siloNeed)
	case hasProject:
		p, err := c.findProject(c.query.Get("project"), RoleViewer)
		if err != nil {
			return nil, err
		}

		m, found := c.s.images.named(p.id, selector)
		if !found {
			return nil, notFound("project-image", selector)
		}

		return m, c.mayImage(m, need, siloNeed)
	default:
		m, found := c.s.images.named("", selector)
		if !found || !c.siloRole().atLeast(RoleViewer) {
			return nil, notFound("silo-image", selector)
		}

		return m, c.mayImage(m, need, siloNeed)
	}
}

func (c *call) mayImage(m *image, need, siloNeed Role) error {
	if m.scope == "" {
		return c.requireSilo(siloNeed)
	}

	p, found := c.s.projects.get(m.scope)
	if !found {
		return notFound(kindImage, m.id)
	}

	return c.allow(p, need, notFound(kindImage, m.id))
}

type imageSpec struct{ name, description, os, version, snapshot string }

func (o *object) imageSpec() imageSpec {
	i := imageSpec{
		name: o.name("name"), description: o.text("description"),
		os: o.text("os"), version: o.text("version"),
	}
	src := o.child("source")
	src.oneOf("type", "snapshot")
	i.snapshot = src.id("id")
	o.adopt(src)

	return i
}

func (i imageSpec) fits() error {
	if err := fitsColumn(i.description, maxDescription); err != nil {
		return err
	}

	if err := fitsColumn(i.os, maxImageText); err != nil {
		return err
	}

	return fitsColumn(i.version, maxImageText)
}

func (s *Server) imageCreate(c *call) (answer, error) {
	o := parseBody(c.body)
	spec := o.imageSpec()

	if o.err != nil {
		return answer{}, o.err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	scope, err := c.imageScope()
	if err != nil {
		return answer{}, err
	}

	// The snapshot's state is not looked at, as on the rack.
	snap, err := resolveID(c, s.snapshots, spec.snapshot, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	if scope != "" && snap.scope != scope {
		return answer{}, invalidRequest("snapshot does not belong to this project")
	}

	s.saga(s.cfg.Latencies.ImageCreate)

	if _, found := s.projects.get(scope); scope != "" && !found {
		return answer{}, notFound(kindProject, scope)
	}

	if err := spec.fits(); err != nil {
		return answer{}, err
	}

	m := &image{
		meta: newMeta(s, scope, spec.name, spec.description), os: spec.os, version: spec.version,
		size: snap.size, blockSize: snap.blockSize, layer: snap.layer,
	}

	if err := s.images.add(m); err != nil {
		return answer{}, err
	}

	return created(viewImage(m)), nil
}

// imageScope is where a create call puts its image: a project, or the silo.
func (c *call) imageScope() (string, error) {
	if !c.query.Has("project") {
		return "", c.requireSilo(RoleCollaborator)
	}

	p, err := c.findProject(c.query.Get("project"), RoleLimitedCollaborator)
	if err != nil {
		return "", err
	}

	return p.id, nil
}

func (s *Server) imageView(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	m, err := c.findImage(RoleViewer, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return ok(viewImage(m)), nil
}

// imageList lists the images of a project, or those of the silo; never both.
func (s *Server) imageList(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	pg, err := c.page("project")
	if err != nil {
		return answer{}, err
	}

	selector, has := pg.selector["project"]
	if !has {
		if err := c.requireSilo(RoleViewer); err != nil {
			return answer{}, err
		}

		return listIn(pg, s.images, "", viewImage)
	}

	p, err := c.findProject(selector, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	return listIn(pg, s.images, p.id, viewImage)
}

func (s *Server) imageDelete(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	m, err := c.findImage(RoleLimitedCollaborator, RoleCollaborator)
	if err != nil {
		return answer{}, err
	}

	s.images.remove(m)
	s.saga(s.cfg.Latencies.ImageDelete)

	return noContent(), nil
}

func (s *Server) imagePromote(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	m, err := c.findImage(RoleLimitedCollaborator, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	if m.scope == "" {
		return answer{}, invalidRequest("Cannot promote a silo image")
	}

	if err := c.requireSilo(RoleCollaborator); err != nil {
		return answer{}, err
	}

	if err := s.images.moveTo(m, ""); err != nil {
		return answer{}, err
	}

	return accepted(viewImage(m)), nil
}

// imageDemote moves a silo image to a project. The project in the query says
// where to, and is no part of the image's selector.
func (s *Server) imageDemote(c *call) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	p, err := c.queryProject(RoleViewer)
	if err != nil {
		return answer{}, err
	}

	c.query.Del("project")

	m, err := c.findImage(RoleViewer, RoleViewer)
	if err != nil {
		return answer{}, err
	}

	if m.scope != "" {
		return answer{}, invalidRequest("Cannot demote a project image")
	}

	if err := c.requireSilo(RoleCollaborator); err != nil {
		return answer{}, err
	}

	if err := c.allow(p, RoleAdmin, notFound(kindProject, p.id)); err != nil {
		return answer{}, err
	}

	if err := s.images.moveTo(m, p.id); err != nil {
		return answer{}, err
	}

	return accepted(viewImage(m)), nil
}
