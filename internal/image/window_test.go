package image

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// drive makes writes for the given time through a window: the stream is always
// ready, and a write takes what the rack says for so many open ones.
func drive(t *testing.T, w *window, d time.Duration, takes func(open int) (time.Duration, bool)) {
	t.Helper()

	end := time.Now().Add(d)

	for time.Now().Before(end) {
		if err := w.enter(t.Context()); err != nil {
			t.Fatal(err)
		}

		w.mu.Lock()
		took, ok := takes(w.open)
		w.mu.Unlock()

		go func() {
			defer w.leave()

			time.Sleep(took)

			if ok {
				w.wrote(took)
			} else {
				w.stumbled()
			}
		}()
	}

	synctest.Wait()
	time.Sleep(time.Minute)
}

func (w *window) width() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.size
}

// A rack that takes writes side by side gets as many as there may be, within a
// few rounds.
func TestTheWindowOpensForAQuickRack(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWindow(24)
		drive(t, w, 300*time.Millisecond, func(int) (time.Duration, bool) { return 50 * time.Millisecond, true })

		if w.width() != 24 || w.peakWrites() != 24 {
			t.Errorf("%d writes, %d at most", w.width(), w.peakWrites())
		}
	})
}

// A rack whose writes only queue up gets no more than fill the queue.
func TestTheWindowStaysSmallForANarrowRack(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWindow(24)
		// 20 ms and the wait for four at a time.
		drive(t, w, time.Minute, func(open int) (time.Duration, bool) {
			return 20 * time.Millisecond * time.Duration(max(open, 4)) / 4, true
		})

		if n := w.width(); n > 16 || n < 4 {
			t.Errorf("%d writes", n)
		}
	})
}

// Failures close the window, however quick they are, and it opens again.
func TestTheWindowClosesWhenWritesFail(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWindow(24)
		quick := func(int) (time.Duration, bool) { return 20 * time.Millisecond, true }
		drive(t, w, time.Second, quick)

		n := 0

		drive(t, w, time.Second, func(int) (time.Duration, bool) {
			n++

			return 20 * time.Millisecond, n%4 != 0
		})

		if got := w.width(); got > 6 {
			t.Errorf("%d writes while every fourth fails", got)
		}

		drive(t, w, 20*time.Second, quick)

		if w.width() != 24 {
			t.Errorf("%d writes afterwards", w.width())
		}
	})
}

// A rack that slows down in the midst gets fewer writes, but never none.
func TestTheWindowNarrowsWhenTheRackSlowsDown(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		w := newWindow(24)
		drive(t, w, time.Second, func(int) (time.Duration, bool) { return 20 * time.Millisecond, true })
		drive(t, w, 10*time.Second, func(int) (time.Duration, bool) { return 500 * time.Millisecond, true })

		if n := w.width(); n > 12 || n < leastWrites {
			t.Errorf("%d writes", n)
		}
	})
}

func TestWaitingForAPlaceEndsWithItsContext(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancelCause(t.Context())
	w := newWindow(1)

	if err := w.enter(ctx); err != nil {
		t.Fatal(err)
	}

	gone := errors.New("gone")
	cancel(gone)

	if err := w.enter(ctx); !errors.Is(err, gone) {
		t.Error(err)
	}
}
