package image

import (
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// Withdraw takes an image from those that are handed out, so that it can be
// removed. It refuses while the image is being brought anywhere, and if somebody
// was told to use it after the time. Until done is called whoever asks for it
// waits, and then the rack is looked at anew.
func (m *Manager) Withdraw(mark naming.Mark, imageID string, after time.Time) (done func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.leaving[mark.Key] || m.handed[imageID].After(after) {
		return nil, false
	}

	for k := range m.jobs {
		if k.image == mark.Key {
			return nil, false
		}
	}

	m.leaving[mark.Key] = true

	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()

		delete(m.leaving, mark.Key)
		delete(m.handed, imageID)

		for k, f := range m.known {
			if f.id == imageID {
				delete(m.known, k)
			}
		}
	}, true
}

func (m *Manager) isLeaving(id naming.ImageIdentity) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.leaving[id.Key()]
}
