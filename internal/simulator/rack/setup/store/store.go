// Package store keeps what must survive a restart of the simulated rack: the
// plans, the ledger of each sled, the records of each DNS server, the control
// plane's database and the marker of completion. A value is there as it was
// saved, or as it was before, and never in part.
package store

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Store keeps values by name: lower-case letters, digits, dash and dot.
type Store interface {
	// Load answers a value; false when there is none.
	Load(name string) ([]byte, bool, error)
	// Save returns when the value will survive a loss of power.
	Save(name string, value []byte) error
	// Where is where a value is kept, for people.
	Where(name string) string
}

// ErrUnusable is a stored value that can not be gone by. It is not made again:
// what was carried out by it is still there.
var ErrUnusable = errors.New("restore it, or begin with an empty directory")

// Unusable says in one line where the value is and why it can not be gone by.
func Unusable(s Store, name string, why error) error {
	reason := strings.Join(strings.Fields(why.Error()), " ")

	return fmt.Errorf("%s can not be used: %s; %w", s.Where(name), reason, ErrUnusable)
}

var legalName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

func checkName(name string) error {
	if !legalName.MatchString(name) {
		return fmt.Errorf("%q is no name of a stored value", name)
	}

	return nil
}

// Memory is a store for tests and for racks that need not survive. The zero
// value is empty and ready; it is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	values map[string][]byte
}

// Load is that of Store.
func (m *Memory) Load(name string) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	v, ok := m.values[name]

	return slices.Clone(v), ok, checkName(name)
}

// Save is that of Store.
func (m *Memory) Save(name string, value []byte) error {
	if err := checkName(name); err != nil {
		return err
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.values == nil {
		m.values = map[string][]byte{}
	}

	m.values[name] = slices.Clone(value)

	return nil
}

// Where is that of Store.
func (m *Memory) Where(name string) string { return "what is stored as " + name }

// Names are those of all values, sorted.
func (m *Memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return slices.Sorted(maps.Keys(m.values))
}
