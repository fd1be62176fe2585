package image

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Scope is where a new image is kept. The words are those of the class and of
// the option.
type Scope string

// The scopes; the package comment tells them apart.
const (
	ScopeAuto    Scope = "auto"
	ScopeSilo    Scope = "silo"
	ScopeProject Scope = "project"
)

// places is where images go, as far as the token's rights were found out. It
// starts with the silo, and only a restart asks for more again.
type places struct {
	hidden   bool // the silo's images can not be listed
	projects bool // images stay in the projects
}

// aim is what an image is looked for or made with.
type aim struct {
	silo bool // it is to be promoted
	must bool // and is of no use otherwise
}

// scope is the asker's, or else the manager's.
func (m *Manager) scope(w Want) Scope {
	if w.Scope == "" || w.Scope == ScopeAuto {
		return m.cfg.Scope
	}

	return w.Scope
}

// place is where a job for the asker puts its image, empty for the silo. The
// caller holds mu.
func (m *Manager) place(w Want) string {
	switch s := m.scope(w); {
	case s == ScopeProject, s == ScopeAuto && m.places.projects:
		return w.ProjectID
	default:
		return ""
	}
}

// useful are the places in which the asker can use an image, in the order of
// looking.
func (m *Manager) useful(w Want) []string {
	if m.scope(w) == ScopeSilo {
		return []string{""}
	}

	return []string{"", w.ProjectID}
}

func (m *Manager) aim(w Want) aim {
	m.mu.Lock()
	defer m.mu.Unlock()

	return aim{silo: m.place(w) == "", must: m.scope(w) == ScopeSilo}
}

// aimOf is a job's: its place may have been refused since it began.
func (m *Manager) aimOf(j *job) aim {
	m.mu.Lock()
	defer m.mu.Unlock()

	must := j.needsSilo()

	return aim{silo: j.key.place == "" && (must || !m.places.projects), must: must}
}

func (m *Manager) silo() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return !m.places.projects
}

func (m *Manager) siloHidden() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.places.hidden
}

// hideSilo notes that the silo's images are not for this token.
func (m *Manager) hideSilo(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.places.hidden = true
	m.keepInProjects("the token may not list the silo's images", err)
}

// refusePromotion notes that this token may not promote.
func (m *Manager) refusePromotion(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.keepInProjects("the token may not promote images to the silo", err)
}

func (m *Manager) keepInProjects(why string, err error) {
	if m.places.projects {
		return
	}

	m.places.projects = true
	m.cfg.Log.Info("images stay in the projects: "+why, zap.Error(err))
}

// refusedSilo is what scope silo comes to without the role for it.
func refusedSilo(id naming.ImageIdentity) error {
	return &MendError{Reason: fmt.Sprintf("image_scope: silo: the daemon's token may not keep the Talos %s image in the silo, "+
		"which takes the role silo collaborator; or choose auto or project", id.Talos)}
}

// unusable is an image that the rack lists and hides: whatever reads an image by
// its ID, as the creation of a disk does, takes the role silo viewer, even for
// images of a project.
func unusable(id naming.ImageIdentity) error {
	return &MendError{Reason: fmt.Sprintf("the Talos %s image is in the rack and the daemon's token may not use it: "+
		"the token needs the role silo viewer beside that on the project", id.Talos)}
}
