package talos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"
	"time"
)

var (
	errIdle      = errors.New("the download stood still")
	errTruncated = errors.New("the answer ended early")
	errChanged   = errors.New("the file changed while it was downloaded")
)

// answer is one answer of the factory, or of the storage that it names.
type answer struct {
	ctx    context.Context //nolint:containedctx // the request's own, which ends the body's reads
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	idle   time.Duration
	timer  *time.Timer
}

func newAnswer(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, idle time.Duration) *answer {
	timer := time.AfterFunc(idle, func() {
		cancel(fmt.Errorf("%w: no byte in %s", errIdle, idle))
	})
	timer.Stop()

	return &answer{ctx: ctx, cancel: cancel, body: body, idle: idle, timer: timer}
}

// Read ends when nothing comes. The idle clock runs only while a read waits, so
// that a slow consumer does not end the download.
func (a *answer) Read(p []byte) (int, error) {
	a.timer.Reset(a.idle)
	n, err := a.body.Read(p)
	a.timer.Stop()

	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		if cause := context.Cause(a.ctx); cause != nil {
			err = cause
		}
	}

	return n, err
}

// close ends the request.
func (a *answer) close() {
	a.timer.Stop()
	a.cancel(nil)
	a.body.Close() //nolint:errcheck // nothing is written, and the request is over
}

// source is a file of the factory: it counts, sums and checks the length. A
// download that breaks off goes on where it was:
//
//	reading ──cut, or stands still──▶ pausing ──▶ asking for the rest
//	   ▲                                 ▲              │      │
//	   ├──────── the rest is sent ───────┼──────────────┤      │
//	   ├─ all of it, the same so far ────┼──────────────┘      │
//	   │                                 └── no answer, busy ──┤
//	   │                                        refused, other bytes, too often
//	   └── a byte comes: too often counts anew                 ▼
//	                                                         failed
type source struct {
	ctx    context.Context //nolint:containedctx // that of the whole download
	answer *answer
	// again asks for the file from byte done on. Nil never asks again.
	again func(ctx context.Context, s *source) (*answer, error)
	tries int           // in a row, without a byte
	pause time.Duration // before the first of them

	sum   hash.Hash
	total int64 // -1 when not known
	done  atomic.Int64

	cut       error // why the answer has ended before its end
	fruitless int
	err       error
}

func newSource(ctx context.Context, a *answer, total int64) *source {
	return &source{ctx: ctx, answer: a, sum: sha256.New(), total: total}
}

// Read implements io.Reader. Its first error stays.
func (s *source) Read(p []byte) (int, error) {
	for s.err == nil {
		if s.cut != nil {
			if s.err = s.resume(); s.err != nil {
				break
			}
		}

		n, err := s.answer.Read(p)
		s.sum.Write(p[:n])

		done := s.done.Add(int64(n))

		if n > 0 {
			s.fruitless = 0
		}

		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, io.EOF) && (s.total < 0 || done == s.total):
			s.err = io.EOF

			return n, s.err
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			err = fmt.Errorf("%w: %d of %d bytes", errTruncated, done, s.total)
		}

		s.cut = err

		if n > 0 {
			return n, nil
		}
	}

	return 0, s.err
}

// resume asks again until an answer goes on at the next byte.
func (s *source) resume() error {
	for {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}

		if s.again == nil || s.fruitless >= s.tries {
			return s.cut
		}

		s.answer.close()

		delay := s.pause << s.fruitless
		s.fruitless++

		if f, ok := errors.AsType[*FactoryError](s.cut); ok {
			delay = max(delay, f.RetryAfter)
		}

		select {
		case <-time.After(delay):
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}

		a, err := s.again(s.ctx, s)
		if err == nil {
			s.answer, s.cut = a, nil

			return nil
		}

		s.cut = err

		if !worthAsking(err) {
			return err
		}
	}
}

// worthAsking tells the errors that may pass by asking again.
func worthAsking(err error) bool {
	if errors.Is(err, errChanged) {
		return false
	}

	f, ok := errors.AsType[*FactoryError](err)

	return !ok || f.Kind == KindTransport || f.Kind == KindServer ||
		f.Kind == KindRetryLater && f.RetryAfter <= maxResumeWait
}

// skip reads over the bytes that are there already, which must be the same.
func (s *source) skip(a *answer) error {
	sum := sha256.New()

	if n, err := io.CopyN(sum, a, s.done.Load()); err != nil {
		return fmt.Errorf("%w: %d bytes, after it had broken off at %d", errTruncated, n, s.done.Load())
	}

	if !bytes.Equal(sum.Sum(nil), s.sum.Sum(nil)) {
		return errChanged
	}

	return nil
}

// failure is the error that ended the source before its end, else nil.
func (s *source) failure() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}

	return s.err
}

// Close ends the request.
func (s *source) Close() { s.answer.close() }
