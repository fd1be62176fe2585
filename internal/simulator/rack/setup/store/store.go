// Package store keeps what must survive a restart of the simulated rack: the
// plans, the ledger of each sled, the records of each DNS server, the control
// plane's database and the marker of completion. A value is there as it was
// saved, or as it was before, and never in part.
package store

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
)

// Store keeps values by name: lower-case letters, digits, dash and dot.
type Store interface {
	// Load answers a value; false when there is none.
	Load(name string) ([]byte, bool, error)
	// Save returns when the value will survive a loss of power.
	Save(name string, value []byte) error
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

// Names are those of all values, sorted.
func (m *Memory) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return slices.Sorted(maps.Keys(m.values))
}
