// Package credentials follows keys and tokens that change while the daemon runs,
// and tells ahead when they expire.
//
// A file is read again every few seconds and compared by what is in it: neither
// times nor notices of the file system can be relied on where a secret is mounted
// from elsewhere and swapped by a symbolic link. What has changed counts only when
// it reads the same twice, so that a file that is being written is left alone, and
// is taken only once it has proved itself. Until then, the one before stays.
package credentials

import (
	"context"
	"errors"
	"time"
)

const (
	// Every is how often a file is read.
	Every = 2 * time.Second
	// slowest is the longest pause between two tries of the same credential.
	slowest = time.Minute
)

// Watch follows one credential, a value that can be compared.
type Watch[T comparable] struct {
	// Read answers what is there now.
	Read func() (T, error)
	// Try proves the credential and puts it to use, or says why not.
	Try func(ctx context.Context, credential T) error
	// Told is called with what keeps the newest credential from being used, and
	// with nil when the one in use is the newest again. The same is told again only
	// when the credential is tried again.
	Told func(err error)
}

// sight is what a read has answered.
type sight[T comparable] struct {
	value T
	wrong string
}

// Run follows the credential until ctx ends. current is the one in use.
func (w *Watch[T]) Run(ctx context.Context, current T) {
	used := sight[T]{value: current}
	last := used

	var (
		told bool
		next time.Time
		gap  time.Duration
	)

	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(Every):
		}

		now := w.look()
		settled := now == last
		last = now

		switch {
		case !settled:
			next, gap = time.Time{}, Every
		case now == used:
			if told {
				told = false

				w.Told(nil)
			}
		case time.Now().Before(next):
		default:
			err := w.judge(ctx, now)
			if ctx.Err() != nil {
				return
			}

			if err == nil {
				used, told = now, false

				w.Told(nil)

				continue
			}

			told = true

			w.Told(err)

			next = time.Now().Add(gap)
			gap = min(2*gap, slowest)
		}
	}
}

func (w *Watch[T]) look() sight[T] {
	v, err := w.Read()
	if err != nil {
		var none T

		return sight[T]{none, err.Error()}
	}

	return sight[T]{value: v}
}

func (w *Watch[T]) judge(ctx context.Context, s sight[T]) error {
	if s.wrong != "" {
		return errors.New(s.wrong)
	}

	return w.Try(ctx, s.value)
}
