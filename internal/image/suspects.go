package image

import (
	"maps"
	"slices"
	"sync"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// suspects are projects in which somebody has seen scratch of ours. Records of
// runs lead to nearly all scratch; a disk that the rack makes after its run
// was found to have left nothing, and was forgotten, has no record any more.
type suspects struct {
	mu       sync.Mutex
	projects map[string]bool
}

// Saw is told what somebody has seen in a project. If any of it is scratch of
// ours the sweep looks there too and decides, until it finds nothing more.
func (m *Manager) Saw(projectID string, disks []oxide.Disk, snapshots []oxide.Snapshot) {
	isScratch := func(d oxide.Disk) bool {
		_, ok := m.mark(d.Description, naming.KindScratch)

		return ok
	}
	isOwn := func(s oxide.Snapshot) bool { return m.ownSnapshot(&s) }

	if !slices.ContainsFunc(disks, isScratch) && !slices.ContainsFunc(snapshots, isOwn) {
		return
	}

	m.suspects.mu.Lock()
	defer m.suspects.mu.Unlock()

	if m.suspects.projects == nil {
		m.suspects.projects = map[string]bool{}
	}

	m.suspects.projects[projectID] = true
}

func (s *suspects) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Collect(maps.Keys(s.projects))
}

// clear drops the projects that were listed and hold no scratch.
func (s *suspects) clear(listed, dirty map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	maps.DeleteFunc(s.projects, func(p string, _ bool) bool { return listed[p] && !dirty[p] })
}
