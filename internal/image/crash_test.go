package image_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Invariant: wherever a process is killed, just before or just after a call,
// the next one ends with the one image and without scratch.
func TestAKillAtEachCall(t *testing.T) {
	t.Parallel()

	for _, last := range []bool{false, true} {
		for n := 1; n <= 40; n++ {
			t.Run(fmt.Sprintf("call %d, with its effect: %t", n, last), func(t *testing.T) {
				t.Parallel()
				killAt(t, n, last)
			})
		}
	}
}

func killAt(t *testing.T, n int, last bool) {
	t.Helper()

	w := newWorld()

	synctest.Test(t, func(t *testing.T) {
		w.life = &life{killAt: n, last: last, killed: make(chan struct{})}
		first, stop := w.start(t, "0a1b2c3d", nil)

		go func() {
			for range 120 {
				if _, err := first.Ask(t.Context(), want()); err != nil {
					return
				}

				time.Sleep(time.Second)
			}
		}()

		select {
		case <-w.life.killed:
		case <-time.After(2 * time.Minute): // there are not so many calls
		}

		synctest.Wait()
		stop()

		w.life = nil

		second, stop := w.start(t, "4e5f6071", nil)
		until(t, second, want(), time.Minute)
		settle(t, w, 5*time.Minute)
		time.Sleep(3 * time.Minute)
		stop()

		if img := one(t, w); img.ProjectId != "" {
			t.Error("the image was not promoted")
		}

		checkContent(t, one(t, w), w.source.data)
		w.rack.checkEmpty(t)

		if left := w.omni.records(); len(left) != 0 {
			t.Errorf("records %v are left", left)
		}
	})
}
