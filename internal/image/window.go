package image

import (
	"context"
	"sync"
	"time"
)

const (
	// firstWrites is how many writes are open at first, as with other clients of
	// the rack.
	firstWrites = 8
	// leastWrites is how far slowness alone takes the window down: fewer writes
	// would not be faster, only later.
	leastWrites = 4

	// A write that takes much longer than the quickest waits behind others. From
	// four times on fewer are as fast for us and kinder to everybody else.
	growBelow   = 2
	shrinkAbove = 4

	// A wider window must be worth a quarter of what it could be worth, or it
	// goes back and stays for some rounds.
	worth     = 0.25
	stayFor   = 8
	forgetful = 16 // the part by which the quickest round is forgotten each round
)

// window bounds the writes that are open at once, by what the rack makes of
// them:
//
//	the stream waits for a place ─────────────▶ doubles at first, later one more
//	wider, and yet hardly more is written ────▶ back to what it was
//	slower than growBelow times the quickest ─▶ stays
//	slower than shrinkAbove times ────────────▶ a quarter less
//	a write fails ────────────────────────────▶ half
//
// It changes once each round, which is as many writes as the window is wide.
type window struct {
	most int
	wake chan struct{} // a place may be free

	mu       sync.Mutex
	size     int
	open     int
	peak     int           // most open at once
	careful  bool          // no more doubling
	wanted   bool          // the stream had to wait in this round
	old      int           // writes to come that began under another width
	round    int           // writes of this round that have ended
	took     time.Duration // all of them together
	failed   bool          // one of them has failed
	quickest time.Duration // mean time of a write in the quickest round

	grewFrom int     // the width before the last change, if that was to a wider one
	rate     float64 // writes in a second at that width
	stay     int     // rounds before the next try
}

func newWindow(most int) *window {
	return &window{most: most, size: min(firstWrites, most), wake: make(chan struct{}, 1)}
}

// enter waits for a place. Only one goroutine may call it.
func (w *window) enter(ctx context.Context) error {
	for {
		w.mu.Lock()

		if w.open < w.size {
			w.open++
			w.peak = max(w.peak, w.open)
			w.mu.Unlock()

			return nil
		}

		w.wanted = true
		w.mu.Unlock()

		select {
		case <-w.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leave gives the place back.
func (w *window) leave() {
	w.mu.Lock()
	w.open--
	w.mu.Unlock()

	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// wrote notes a write that went well.
func (w *window) wrote(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.old > 0 {
		w.old--

		return
	}

	w.round++
	w.took += took

	if w.round >= w.size {
		w.turn()
	}
}

// stumbled notes a write that failed.
func (w *window) stumbled() {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.failed {
		return
	}

	w.failed, w.careful, w.grewFrom = true, true, 0
	w.size = max(w.size/2, 1)
	w.round, w.took = 0, 0
}

// turn ends a round. The caller holds mu.
func (w *window) turn() {
	mean := max(w.took/time.Duration(w.round), 1)
	rate := float64(w.size) / mean.Seconds()

	if w.quickest == 0 || mean < w.quickest {
		w.quickest = mean
	}

	width := w.size

	switch {
	case w.failed: // it was halved in this round
	case w.grewFrom > 0 && rate < w.rate*(1+worth*float64(w.size-w.grewFrom)/float64(w.grewFrom)):
		w.size, w.careful, w.stay = w.grewFrom, true, stayFor
	case mean > shrinkAbove*w.quickest:
		w.size, w.careful = min(max(w.size-w.size/4, leastWrites), w.size), true
	case mean > growBelow*w.quickest, !w.wanted:
	case w.stay > 0:
		w.stay--
	case w.careful:
		w.size = min(w.size+1, w.most)
	default:
		w.size = min(2*w.size, w.most)
	}

	w.grewFrom = 0

	if w.size > width {
		w.grewFrom, w.rate, w.old = width, rate, width
	}

	// A rack that has become slower for good is not held against its best day.
	w.quickest += w.quickest / forgetful
	w.round, w.took, w.wanted, w.failed = 0, 0, false, false
}

// peakWrites is the most writes that were open at once.
func (w *window) peakWrites() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.peak
}
