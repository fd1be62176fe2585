package talos

import (
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
)

// source is the body of an answer: it counts, sums, checks the length and ends
// a read that brings nothing. The idle clock runs only while a read waits, so
// that a slow consumer does not end the download.
type source struct {
	ctx    context.Context // the request's own, which ends the body's reads
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	idle   time.Duration
	timer  *time.Timer
	sum    hash.Hash
	total  int64 // -1 when not known
	done   atomic.Int64
	err    error
}

func newSource(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, total int64, idle time.Duration) *source {
	timer := time.AfterFunc(idle, func() {
		cancel(fmt.Errorf("%w: no byte in %s", errIdle, idle))
	})
	timer.Stop()

	return &source{ctx: ctx, cancel: cancel, body: body, idle: idle, timer: timer, sum: sha256.New(), total: total}
}

// Read implements io.Reader. Its first error stays.
func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}

	s.timer.Reset(s.idle)
	n, err := s.body.Read(p)
	s.timer.Stop()

	s.sum.Write(p[:n])

	done := s.done.Add(int64(n))

	switch {
	case err == nil:
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		if s.total >= 0 && done != s.total || !errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %d of %d bytes", errTruncated, done, s.total)
		}
	default:
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
	}

	s.err = err

	return n, err
}

// failure is the error that ended the source before its end, else nil.
func (s *source) failure() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}

	return s.err
}

// Close ends the request.
func (s *source) Close() {
	s.timer.Stop()
	s.cancel(nil)
	s.body.Close() //nolint:errcheck // nothing is written, and the request is over
}
