package rack

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// meta is what every object of the rack has. Scope is the ID of the project,
// VPC or user in which the name is unique; empty for the silo.
type meta struct {
	id, name, description, scope string
	created, modified            time.Time
	rack                         *Server
}

// now is the time by which it changes.
func (m *meta) now() time.Time { return m.rack.clock.Now().UTC() }

// moves tells whoever watches that an object goes from one state to another.
func (m *meta) moves(kind, from, to string) {
	if m.rack.moved != nil && from != to {
		m.rack.moved(kind, from, to)
	}
}

func (m *meta) head() *meta { return m }

func newMeta(s *Server, scope, name, description string) meta {
	now := s.clock.Now().UTC()

	return meta{
		id: uuid.NewString(), name: name, description: description, scope: scope,
		created: now, modified: now, rack: s,
	}
}

// identity is the wire form of meta.
type identity struct {
	ID           string    `json:"id"`
	Name         string    `json:"name"`
	Description  string    `json:"description"`
	TimeCreated  time.Time `json:"time_created"`
	TimeModified time.Time `json:"time_modified"`
}

func (m *meta) identity() identity {
	return identity{
		ID: m.id, Name: m.name, Description: m.description,
		TimeCreated: m.created, TimeModified: m.modified,
	}
}

type entity interface{ head() *meta }

type scopedName struct{ scope, name string }

// table holds the living objects of one kind. A deleted object leaves it, and
// its name is free at once.
type table[T entity] struct {
	kind    string
	byID    map[string]T
	byName  map[scopedName]T
	ordered map[string]*index[T] // by scope
}

func newTable[T entity](kind string) *table[T] {
	return &table[T]{kind: kind, byID: map[string]T{}, byName: map[scopedName]T{}, ordered: map[string]*index[T]{}}
}

// add fails when the name is taken in the object's scope.
func (t *table[T]) add(x T) error {
	m := x.head()

	if _, taken := t.named(m.scope, m.name); taken {
		return alreadyExists(t.kind, m.name)
	}

	t.byID[m.id] = x
	t.enter(x)

	return nil
}

func (t *table[T]) remove(x T) {
	t.leave(x)
	delete(t.byID, x.head().id)
}

// enter makes an object known under its name, and leave undoes that; in
// between neither its name nor its scope may change.
func (t *table[T]) enter(x T) {
	m := x.head()
	t.byName[scopedName{m.scope, m.name}] = x

	ix := t.ordered[m.scope]
	if ix == nil {
		ix = &index[T]{}
		t.ordered[m.scope] = ix
	}

	ix.add(x)
}

func (t *table[T]) leave(x T) {
	m := x.head()
	if _, here := t.byID[m.id]; !here {
		return // removed before
	}

	delete(t.byName, scopedName{m.scope, m.name})

	ix := t.ordered[m.scope]
	ix.remove(x)

	if len(ix.byID) == 0 {
		delete(t.ordered, m.scope)
	}
}

// moveTo gives an object another scope, where its name must be free.
func (t *table[T]) moveTo(x T, scope string) error { return t.change(x, scope, x.head().name) }

// rename gives an object another name, which must be free in its scope.
func (t *table[T]) rename(x T, name string) error { return t.change(x, x.head().scope, name) }

func (t *table[T]) change(x T, scope, name string) error {
	m := x.head()

	if _, here := t.byID[m.id]; !here {
		return notFound(t.kind, m.id)
	}

	if other, taken := t.named(scope, name); taken && other.head() != m {
		return alreadyExists(t.kind, name)
	}

	t.leave(x)
	m.scope, m.name = scope, name
	m.modified = m.now()
	t.enter(x)

	return nil
}

func (t *table[T]) get(id string) (T, bool) {
	x, ok := t.byID[id]

	return x, ok
}

func (t *table[T]) named(scope, name string) (T, bool) {
	x, ok := t.byName[scopedName{scope, name}]

	return x, ok
}

// in gives the objects of one scope, by name.
func (t *table[T]) in(scope string) []T {
	if ix := t.ordered[scope]; ix != nil {
		return slices.Clone(ix.byName)
	}

	return nil
}

// count is how many objects one scope has.
func (t *table[T]) count(scope string) int {
	if ix := t.ordered[scope]; ix != nil {
		return len(ix.byID)
	}

	return 0
}
