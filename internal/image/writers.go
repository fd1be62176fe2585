package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

const (
	chunkSize = rack.MaxChunk

	// chunkDeadline is for one write: a rack service that stands still answers
	// nothing at all.
	chunkDeadline = 60 * time.Second
	// chunkTries bounds the tries of one chunk. A service that has lost the disk
	// never finds it again, so a new disk is better than patience.
	chunkTries      = 8
	firstChunkPause = 250 * time.Millisecond
	maxChunkPause   = 10 * time.Second
)

//nolint:gochecknoglobals // a constant
var zeros [chunkSize]byte

// chunkWriter is the one call that writers make.
type chunkWriter interface {
	BulkWrite(ctx context.Context, diskID string, offset uint64, chunk []byte) error
}

// writers copy a stream into a blank disk, several chunks at a time.
type writers struct {
	rack     chunkWriter
	disk     string
	count    int
	block    int    // bytes; the last chunk is filled up with zeros to it
	limit    uint64 // size of the disk in bytes
	progress func(n int)
	// trouble tells of a write that failed and is tried again; nil tells nobody.
	trouble func(err error, try int)
}

type chunk struct {
	offset uint64
	data   []byte // of full length chunkSize in memory
}

// copy writes head and then all of r, and answers the length of both. Chunks
// of zeros are left out, as the disk has never held anything else. The memory
// is that of two chunks more than writers. The first error cancels everything,
// and copy returns when all writers have ended; cancel must end a blocked read
// of r too.
func (w *writers) copy(ctx context.Context, cancel context.CancelCauseFunc, head []byte, end bool, r io.Reader) (uint64, error) {
	var (
		group  sync.WaitGroup
		chunks = make(chan chunk)
		free   = make(chan []byte, w.count+2) // room for head's too
	)

	for range w.count + 1 {
		free <- nil // made when first needed: small images need few
	}

	for i := range w.count {
		group.Go(func() {
			for c := range chunks {
				if err := w.write(ctx, c, i); err != nil {
					cancel(err)

					return
				}

				w.progress(len(c.data))
				free <- c.data[:cap(c.data)]
			}
		})
	}

	n, err := w.produce(ctx, head, end, r, chunks, free)

	close(chunks)

	if err != nil {
		cancel(err)
	}

	group.Wait()

	// The first failure is the cause of all others.
	if err := context.Cause(ctx); err != nil {
		return n, err
	}

	return n, nil
}

// produce cuts the stream into chunks at multiples of chunkSize, however the
// reads fall.
func (w *writers) produce(
	ctx context.Context, buf []byte, end bool, r io.Reader, chunks chan<- chunk, free <-chan []byte,
) (uint64, error) {
	var offset uint64

	for {
		if len(buf) > 0 {
			if offset+uint64(len(buf)) > w.limit {
				return offset, fmt.Errorf("the image is longer than its partition table says, over %d bytes", w.limit)
			}

			sent, err := w.send(ctx, chunk{offset, buf}, chunks)
			if err != nil {
				return offset, err
			}

			offset += uint64(len(buf))

			if !sent {
				buf = buf[:cap(buf)]
			} else {
				buf = nil
			}
		}

		if end {
			return offset, nil
		}

		if buf == nil {
			select {
			case buf = <-free:
			case <-ctx.Done():
				return offset, context.Cause(ctx)
			}
		}

		if buf == nil {
			buf = make([]byte, chunkSize)
		}

		var err error
		if buf, end, err = fill(r, buf); err != nil {
			return offset, fmt.Errorf("reading the image at byte %d: %w", offset+uint64(len(buf)), err)
		}
	}
}

// fill reads one whole chunk into buf's memory, less only at the end. Unlike
// io.ReadFull it keeps apart the end of a stream and a stream that broke off
// and says so with an error that wraps io.ErrUnexpectedEOF.
func fill(r io.Reader, buf []byte) (data []byte, end bool, err error) {
	buf = buf[:chunkSize]

	for n := 0; ; {
		if n == chunkSize {
			return buf, false, nil
		}

		m, err := r.Read(buf[n:])
		n += m

		if err == io.EOF {
			return buf[:n], true, nil
		}

		if err != nil {
			return buf[:n], false, err
		}
	}
}

// send hands a chunk to the writers, unless it is all zeros. The last one is
// filled up to whole blocks.
func (w *writers) send(ctx context.Context, c chunk, chunks chan<- chunk) (bool, error) {
	if bytes.Equal(c.data, zeros[:len(c.data)]) {
		w.progress(len(c.data))

		return false, nil
	}

	if rest := len(c.data) % w.block; rest != 0 {
		n := len(c.data)
		c.data = c.data[:n+w.block-rest]
		clear(c.data[n:])
	}

	select {
	case chunks <- c:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// write writes one chunk, again and again while that can help. The same bytes
// at the same place are harmless however often they arrive.
func (w *writers) write(ctx context.Context, c chunk, writer int) error {
	delay := firstChunkPause

	for try := 1; ; try++ {
		err := w.writeOnce(ctx, c)
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		if try == chunkTries || !rack.ClassOf(err).Passing() {
			return fmt.Errorf("chunk at offset %d, try %d: %w", c.offset, try, err)
		}

		if w.trouble != nil {
			w.trouble(err, try)
		}

		// Spread, or all writers would come back at the same instant.
		spread := delay * time.Duration(writer) / time.Duration(2*w.count)

		if err := pause(ctx, delay+spread); err != nil {
			return err
		}

		delay = min(2*delay, maxChunkPause)
	}
}

func (w *writers) writeOnce(ctx context.Context, c chunk) error {
	ctx, cancel := context.WithTimeout(ctx, chunkDeadline)
	defer cancel()

	return w.rack.BulkWrite(ctx, w.disk, c.offset, c.data)
}
