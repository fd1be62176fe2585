package rack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Invariant: whatever is added, removed, renamed and moved, a walk over the
// pages gives each living object of the scope once, in the order asked for.
func TestPagesFollowTheIndexes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	things := newTable[*user]("thing")

	var living []*user

	for n := range 2000 {
		switch rng.IntN(8) {
		case 0, 1:
			if len(living) > 0 {
				at := rng.IntN(len(living))
				things.remove(living[at])
				living = slices.Delete(living, at, at+1)
			}
		case 2:
			if len(living) > 0 {
				must(0, things.rename(living[rng.IntN(len(living))], fmt.Sprintf("renamed-%d", n)))(t)
			}
		case 3:
			if len(living) > 0 {
				must(0, things.moveTo(living[rng.IntN(len(living))], string("ab"[rng.IntN(2)])))(t)
			}
		default:
			u := &user{meta: newMeta(clocked, string("ab"[rng.IntN(2)]), fmt.Sprintf("u%d", rng.IntN(1<<30)), "")}
			must(0, things.add(u))(t)

			living = append(living, u)
		}
	}

	for _, scope := range []string{"a", "b", "none"} {
		for sort, key := range map[sortMode]func(*user) string{
			byNameAscending:  func(u *user) string { return u.name },
			byNameDescending: func(u *user) string { return u.name },
			byIDAscending:    func(u *user) string { return u.id },
		} {
			var want []string

			for _, u := range living {
				if u.scope == scope {
					want = append(want, key(u))
				}
			}

			slices.Sort(want)

			if sort == byNameDescending {
				slices.Reverse(want)
			}

			got := walk(things, scope, sort, key)
			if !slices.Equal(got, want) {
				t.Errorf("%s by %s: got %d objects, want %d, or another order", scope, sort, len(got), len(want))
			}

			if n := things.count(scope); n != len(want) {
				t.Errorf("%s has %d objects, want %d", scope, n, len(want))
			}
		}
	}
}

func walk(things *table[*user], scope string, sort sortMode, key func(*user) string) []string {
	var got []string

	for p := (page{limit: 7, sort: sort}); ; p.started = true {
		part := things.ordered[scope].after(p)
		if len(part) == 0 {
			return got
		}

		for _, u := range part {
			got = append(got, key(u))
		}

		p.after = got[len(got)-1]
	}
}

// A name that is taken stays with its holder.
func TestTakenNames(t *testing.T) {
	things := newTable[*user]("thing")
	a, b := &user{meta: newMeta(clocked, "s", "a", "")}, &user{meta: newMeta(clocked, "s", "b", "")}

	for _, u := range []*user{a, b} {
		must(0, things.add(u))(t)
	}

	for what, err := range map[string]error{
		"add":    things.add(&user{meta: newMeta(clocked, "s", "a", "")}),
		"rename": things.rename(b, "a"),
	} {
		if err == nil || !strings.Contains(err.Error(), "already exists") {
			t.Errorf("%s: %v", what, err)
		}
	}

	things.remove(a)
	things.remove(a)
	must(0, things.rename(b, "a"))(t)
	things.remove(a)

	if got, found := things.named("s", "a"); !found || got != b {
		t.Error("removing an object that was gone took another's name")
	}
}

// clocked is a rack that has nothing but the time.
var clocked = &Server{clock: systemClock{}}
