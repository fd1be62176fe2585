package rack

import (
	"slices"
	"strings"
)

// index holds the objects of one scope in the orders that lists go by. Places
// are found by halving; moving what comes behind a new object is a copy of
// pointers, which stays small for all that a rack holds.
type index[T entity] struct {
	byName, byID []T
}

func compareName[T entity](x T, name string) int { return strings.Compare(x.head().name, name) }
func compareID[T entity](x T, id string) int     { return strings.Compare(x.head().id, id) }

func (ix *index[T]) add(x T) {
	m := x.head()
	ix.byName = insertAt(ix.byName, x, m.name, compareName[T])
	ix.byID = insertAt(ix.byID, x, m.id, compareID[T])
}

func (ix *index[T]) remove(x T) {
	m := x.head()
	ix.byName = removeAt(ix.byName, m.name, compareName[T])
	ix.byID = removeAt(ix.byID, m.id, compareID[T])
}

func insertAt[T entity](in []T, x T, key string, compare func(T, string) int) []T {
	at, _ := slices.BinarySearchFunc(in, key, compare)

	return slices.Insert(in, at, x)
}

func removeAt[T entity](in []T, key string, compare func(T, string) int) []T {
	at, found := slices.BinarySearchFunc(in, key, compare)
	if !found {
		return in
	}

	return slices.Delete(in, at, at+1)
}

// after gives up to limit objects behind a marker, in the page's order.
func (ix *index[T]) after(p page) []T {
	if ix == nil {
		return nil
	}

	switch p.sort {
	case byIDAscending:
		return ascending(ix.byID, p, compareID[T])
	case byNameDescending:
		return descending(ix.byName, p, compareName[T])
	default:
		return ascending(ix.byName, p, compareName[T])
	}
}

func ascending[T entity](in []T, p page, compare func(T, string) int) []T {
	if p.started {
		at, found := slices.BinarySearchFunc(in, p.after, compare)
		if found {
			at++
		}

		in = in[at:]
	}

	return slices.Clone(in[:min(p.limit, len(in))])
}

func descending[T entity](in []T, p page, compare func(T, string) int) []T {
	if p.started {
		at, _ := slices.BinarySearchFunc(in, p.after, compare)
		in = in[:at]
	}

	out := slices.Clone(in[max(0, len(in)-p.limit):])
	slices.Reverse(out)

	return out
}
