package backoff

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

var errFull = errors.New("full")

// Rule: of fifty who fail for one cause one tries for all, ever less often; those
// with another cause are not held up; and all go on soon after it works.
func TestOneOfManyTriesForAll(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := &Shared{First: 10 * time.Second, Most: 2 * time.Minute}
		tries := 0
		next := make([]time.Time, 50)
		done := map[int]time.Duration{}
		began := time.Now()

		for len(done) < len(next) {
			if time.Since(began) > 3*time.Hour {
				t.Fatalf("%d are done after three hours", len(done))
			}

			full := time.Since(began) < time.Hour

			for i := range next {
				if _, ok := done[i]; ok || time.Now().Before(next[i]) {
					continue
				}

				who := fmt.Sprint(i)

				why, again := s.Ask("full", who)
				if why != nil {
					next[i] = time.Now().Add(again)

					continue
				}

				if full {
					tries++
					s.Failed("full", who, errFull)
				} else {
					s.Done("full", who)
					done[i] = time.Since(began)
				}
			}

			if why, _ := s.Ask("other", "x"); why != nil {
				t.Fatalf("another cause waits: %v", why)
			}

			time.Sleep(time.Second)
		}

		// An hour in pauses of two minutes, and the first ones.
		if tries < 25 || tries > 60 {
			t.Errorf("%d tries in an hour", tries)
		}

		for i, at := range done {
			if at > time.Hour+3*time.Minute {
				t.Errorf("%d is done after %s", i, at)
			}
		}
	})
}

// Who was to try and is gone holds nobody up.
func TestOneWhoIsGoneIsNotWaitedFor(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		s := &Shared{First: time.Second, Most: time.Second}
		s.Failed("full", "a", errFull)
		time.Sleep(2 * time.Second)

		if why, _ := s.Ask("full", "a"); why != nil {
			t.Fatal(why)
		}

		if why, again := s.Ask("full", "b"); !errors.Is(why, errFull) || again <= 0 {
			t.Fatalf("%v, %s", why, again)
		}

		s.Leave("a")

		if why, _ := s.Ask("full", "b"); why != nil {
			t.Fatal(why)
		}

		time.Sleep(tryLife)

		if why, _ := s.Ask("full", "c"); why != nil {
			t.Fatal(why)
		}
	})
}
