package rack

import (
	"time"

	"github.com/google/uuid"
)

// meta is what every object of the rack has. Scope is the ID of the project,
// VPC or user in which the name is unique; empty for the silo.
type meta struct {
	id, name, description, scope string
	created, modified            time.Time
}

func (m *meta) head() *meta { return m }

func newMeta(scope, name, description string) meta {
	now := time.Now().UTC()

	return meta{
		id: uuid.NewString(), name: name, description: description, scope: scope,
		created: now, modified: now,
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
	kind   string
	byID   map[string]T
	byName map[scopedName]T
}

func newTable[T entity](kind string) *table[T] {
	return &table[T]{kind: kind, byID: map[string]T{}, byName: map[scopedName]T{}}
}

// add fails when the name is taken in the object's scope.
func (t *table[T]) add(x T) error {
	m := x.head()
	key := scopedName{m.scope, m.name}

	if _, taken := t.byName[key]; taken {
		return alreadyExists(t.kind, m.name)
	}

	t.byName[key] = x
	t.byID[m.id] = x

	return nil
}

func (t *table[T]) remove(x T) {
	m := x.head()
	delete(t.byID, m.id)
	delete(t.byName, scopedName{m.scope, m.name})
}

// moveTo gives an object another scope, where its name must be free.
func (t *table[T]) moveTo(x T, scope string) error {
	m := x.head()

	if _, taken := t.byName[scopedName{scope, m.name}]; taken {
		return alreadyExists(t.kind, m.name)
	}

	delete(t.byName, scopedName{m.scope, m.name})
	m.scope = scope
	m.modified = time.Now().UTC()
	t.byName[scopedName{scope, m.name}] = x

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

// in gives the objects of one scope, in no order.
func (t *table[T]) in(scope string) []T {
	var out []T

	for _, x := range t.byID {
		if x.head().scope == scope {
			out = append(out, x)
		}
	}

	return out
}
