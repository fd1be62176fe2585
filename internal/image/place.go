package image

import (
	"go.uber.org/zap"
)

// places is where images go, as far as the token's rights were found out. It
// starts with the silo, and only a restart asks for more again.
type places struct {
	hidden   bool // the silo's images can not be listed
	projects bool // images stay in the projects
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

// still tells whether a job's place is where images for the project go today.
func (m *Manager) still(k key, projectID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return k.place == m.place(projectID)
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
