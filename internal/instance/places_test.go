package instance

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asks is Ask for who comes now.
func asks(p *Places, key string) bool {
	ok, _, _ := p.Ask(key, time.Time{})

	return ok
}

func TestPlacesGoInTheOrderOfAsking(t *testing.T) {
	t.Parallel()

	now := time.Unix(0, 0)
	p := NewPlaces(2, time.Second)
	p.now = func() time.Time { return now }

	for _, key := range []string{"a", "b"} {
		if !asks(p, key) {
			t.Fatalf("%s got no place", key)
		}
	}

	now = now.Add(400 * time.Millisecond)

	for i, want := range []time.Duration{
		600 * time.Millisecond, 600 * time.Millisecond, // when a and b are to be done
		1200 * time.Millisecond, 1200 * time.Millisecond, // three quarters of the way to the next
		1950 * time.Millisecond,
	} {
		key := string(rune('c' + i))

		ok, again, position := p.Ask(key, time.Time{})
		if ok || position != i+1 {
			t.Fatalf("%s: ok %v, position %d", key, ok, position)
		}

		if again != want {
			t.Errorf("%s is told to ask again in %s, want %s", key, again, want)
		}
	}

	p.Done("a", time.Second)

	if asks(p, "g") {
		t.Error("g, the fifth in the queue, overtook more than there are places")
	}

	if !asks(p, "d") {
		t.Error("a place was kept for c, who has yet to ask")
	}

	if !asks(p, "d") {
		t.Error("d lost its place by asking twice")
	}

	p.Done("b", time.Second)

	if !asks(p, "c") {
		t.Error("c, the first in the queue, got no place")
	}
}

// Who came first is first, however late it asks.
func TestPlacesGoInTheOrderOfComing(t *testing.T) {
	t.Parallel()

	now := time.Unix(100, 0)
	p := NewPlaces(1, time.Second)
	p.now = func() time.Time { return now }

	asks(p, "holder")

	for key, came := range map[string]int64{"fourth": 4, "first": 1, "third": 3, "second": 2} {
		p.Ask(key, time.Unix(came, 0))
	}

	p.Came("told", time.Unix(5, 0))
	asks(p, "told")

	// A clock that is ahead gives no place behind those who come later.
	p.Ask("ahead", now.Add(time.Hour))
	asks(p, "last")

	for i, key := range []string{"first", "second", "third", "fourth", "told", "ahead", "last"} {
		if _, _, position := p.Ask(key, time.Time{}); position != i+1 {
			t.Errorf("%s is number %d", key, position)
		}
	}
}

// Rule: a place that must be free in a moment is waited for, one after the other; one
// that is held for longer is not, and neither does a crowd wait inside.
func TestAPlaceThatIsFreeInAMomentIsWaitedFor(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		const call = 20 * time.Millisecond

		p := NewPlaces(2, call)
		began := time.Now()

		var (
			group     sync.WaitGroup
			mu        sync.Mutex
			made, out int
			inFlight  int
		)

		work := func(key string) {
			ok, again, _ := p.Await(t.Context(), key, time.Time{})

			mu.Lock()
			defer mu.Unlock()

			if !ok {
				if out++; again < minAsk {
					t.Errorf("%s is told to come again in %s", key, again)
				}

				return
			}

			if inFlight++; inFlight > 2 {
				t.Errorf("%d calls at once", inFlight)
			}

			mu.Unlock()
			time.Sleep(call)
			p.Done(key, call)
			mu.Lock()

			inFlight--
			made++
		}

		for i := range 10 {
			group.Go(func() { work(strconv.Itoa(i)) })
		}

		group.Wait()

		if took := time.Since(began); made != 4 || out != 6 || took != 2*call {
			t.Errorf("%d calls were made and %d turned away in %s", made, out, took)
		}

		// A holder that takes longer than it should is waited for so long and no
		// longer.
		p = NewPlaces(1, call)
		asks(p, "slow")

		began = time.Now()
		if ok, _, _ := p.Await(t.Context(), "patient", time.Time{}); ok || time.Since(began) != awaited {
			t.Errorf("got a place %v after %s", ok, time.Since(began))
		}

		p = NewPlaces(1, time.Second)
		asks(p, "slow")

		began = time.Now()
		if ok, again, _ := p.Await(t.Context(), "patient", time.Time{}); ok || time.Since(began) != 0 || again != time.Second {
			t.Errorf("got a place %v after %s, again in %s", ok, time.Since(began), again)
		}
	})
}

func TestWhoDoesNotComeBackHoldsNobodyUp(t *testing.T) {
	t.Parallel()

	now := time.Unix(0, 0)
	p := NewPlaces(1, time.Second)
	p.now = func() time.Time { return now }

	asks(p, "dead holder")
	asks(p, "dead waiter")

	now = now.Add(grantLife + time.Second)

	if !asks(p, "alive") {
		t.Error("places of the dead are kept for ever")
	}
}

func TestLeavingFreesThePlace(t *testing.T) {
	t.Parallel()

	p := NewPlaces(1, time.Second)
	asks(p, "a")
	asks(p, "b")
	asks(p, "c")
	p.Leave("b")
	p.Leave("a")

	if !asks(p, "c") {
		t.Error("c got no place")
	}
}

func TestNeverMorePlacesThanTheLimit(t *testing.T) {
	t.Parallel()

	p := NewPlaces(4, time.Millisecond)

	var granted []string

	for i := range 100 {
		if key := strconv.Itoa(i); asks(p, key) {
			granted = append(granted, key)
		}
	}

	if !slices.Equal(granted, []string{"0", "1", "2", "3"}) {
		t.Errorf("places were granted to %v", granted)
	}
}
