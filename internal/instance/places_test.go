package instance

import (
	"strconv"
	"testing"
	"time"
)

func TestPlacesGoInTheOrderOfAsking(t *testing.T) {
	t.Parallel()

	p := NewPlaces(2, time.Second)

	for _, key := range []string{"a", "b"} {
		if ok, _, _ := p.Ask(key); !ok {
			t.Fatalf("%s got no place", key)
		}
	}

	for i, key := range []string{"c", "d", "e"} {
		ok, again, position := p.Ask(key)
		if ok || position != i+1 {
			t.Fatalf("%s: ok %v, position %d", key, ok, position)
		}

		if want := time.Duration(i/2+1) * time.Second; again != want {
			t.Errorf("%s is told to ask again in %s, want %s", key, again, want)
		}
	}

	p.Done("a", time.Second)

	if ok, _, _ := p.Ask("d"); ok {
		t.Error("d overtook c")
	}

	if ok, _, _ := p.Ask("c"); !ok {
		t.Error("c, the first in the queue, got no place")
	}

	if ok, _, _ := p.Ask("c"); !ok {
		t.Error("c lost its place by asking twice")
	}
}

func TestWhoDoesNotComeBackHoldsNobodyUp(t *testing.T) {
	t.Parallel()

	now := time.Unix(0, 0)
	p := NewPlaces(1, time.Second)
	p.now = func() time.Time { return now }

	p.Ask("dead holder")
	p.Ask("dead waiter")

	now = now.Add(grantLife + time.Second)

	if ok, _, _ := p.Ask("alive"); !ok {
		t.Error("places of the dead are kept for ever")
	}
}

func TestLeavingFreesThePlace(t *testing.T) {
	t.Parallel()

	p := NewPlaces(1, time.Second)
	p.Ask("a")
	p.Ask("b")
	p.Ask("c")
	p.Leave("b")
	p.Leave("a")

	if ok, _, _ := p.Ask("c"); !ok {
		t.Error("c got no place")
	}
}

func TestNeverMorePlacesThanTheLimit(t *testing.T) {
	t.Parallel()

	p := NewPlaces(4, time.Millisecond)

	granted := 0

	for i := range 100 {
		if ok, _, _ := p.Ask(strconv.Itoa(i)); ok {
			granted++
		}
	}

	if granted != 4 {
		t.Errorf("%d places were granted", granted)
	}
}
