package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
)

// settleFor is for how long a disk may still appear whose create call had no
// clear answer: the rack finishes what it began.
const settleFor = 2 * time.Minute

// scratch is what one import makes on the way. It is written by the import
// and, once that has ended, by the undo.
type scratch struct {
	project string
	name    string // of the disk, known before the call that makes it
	id      string // of the disk, once known
	// snapshots are the names given to finalize so far.
	snapshots []string
	// snapshotID is the one snapshot, when nothing else can have been made.
	snapshotID string
	// settled is the time from which on a disk that is not there by name never
	// will be.
	settled time.Time
	// detached says that the disk was seen so and no call on it is open.
	detached bool
}

// newScratch reserves a name and sees to it that this run's record names the
// project before anything is made there: the record is how another process
// finds what this one leaves behind.
func (m *Manager) newScratch(ctx context.Context, id naming.ImageIdentity, projectID string) (*scratch, error) {
	s := &scratch{project: projectID, name: naming.Scratch(id, naming.NewRun())}

	// Held before it is recorded: the sweep drops a project from the record only
	// while nothing is held in it.
	m.hold(s)

	if err := m.recordProject(ctx, projectID); err != nil {
		m.letGo(s)

		return nil, err
	}

	return s, nil
}

func (m *Manager) hold(s *scratch) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.scratch[s] = struct{}{}
}

func (m *Manager) letGo(s *scratch) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.scratch, s)
}

// setID notes the ID of a disk where the sweep can see it.
func (m *Manager) setID(s *scratch, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	s.id = id
}

// held tells whether an import or an undo of this process has the disk.
func (m *Manager) held(diskID, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	for s := range m.scratch {
		if s.id == diskID || s.name == name && name != "" {
			return true
		}
	}

	return false
}

// holding tells whether anything is held, in the project if one is given.
func (m *Manager) holding(projectID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	for s := range m.scratch {
		if projectID == "" || s.project == projectID {
			return true
		}
	}

	return false
}

// snapshotPrefix begins the names of all snapshots of ours.
const snapshotPrefix = "oipo-snapshot-"

// snapshotName is the n-th name, from 1, for a snapshot of a scratch disk. The
// rack writes the description of a snapshot that finalize makes, so the name
// has to prove what a mark proves elsewhere: only who knows the owner's random
// ID derives it. The form is stored and must not change.
func (m *Manager) snapshotName(diskID string, n int) string {
	return snapshotName(m.cfg.Owner, m.cfg.Provider, diskID, n)
}

func snapshotName(owner, provider, diskID string, n int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{"snapshot", owner, provider, diskID}, "\x00")))

	return fmt.Sprintf("%s%s-%d", snapshotPrefix, hex.EncodeToString(sum[:16]), n)
}

// ownSnapshot tells whether a snapshot was made by an import of this owner
// and provider.
func (m *Manager) ownSnapshot(s *oxide.Snapshot) bool {
	return IsSnapshotOf(m.cfg.Owner, m.cfg.Provider, s)
}

// IsSnapshotOf tells whether a snapshot was made by an import of the owner and
// provider: by its mark, or by its name, which nobody derives who does not know
// the owner.
func IsSnapshotOf(owner, provider string, s *oxide.Snapshot) bool {
	if mark, ok := naming.Parse(s.Description); ok && mark.Owner == owner && mark.Provider == provider && mark.Kind == naming.KindSnapshot {
		return true
	}

	i := strings.LastIndexByte(string(s.Name), '-')
	if i < 0 || s.DiskId == "" {
		return false
	}

	n, err := strconv.Atoi(string(s.Name[i+1:]))

	return err == nil && n > 0 && string(s.Name) == snapshotName(owner, provider, s.DiskId, n)
}
