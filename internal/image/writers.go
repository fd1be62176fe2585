package image

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	most     int    // writes open at once
	block    int    // bytes; the last chunk is filled up with zeros to it
	limit    uint64 // size of the disk in bytes
	progress func(n int)
	// trouble tells of a write that failed and is tried again; nil tells nobody.
	trouble func(err error, try int)
	meter   Meter

	window *window
	digest *digest
}

// written is what went into the disk.
type written struct {
	length uint64 // of the image in bytes
	digest string // in hex, see digest
	writes int    // chunks that were not zeros
	peak   int    // writes open at once
}

type chunk struct {
	order  int // among those that are not zeros
	offset uint64
	length int    // of the image's bytes in data; zeros may follow
	data   []byte // of full length chunkSize in memory
}

// copy writes head and then all of r. Chunks of zeros are left out, as the disk
// has never held anything else. The memory is that of one chunk more than
// writes were ever open at once. The first error cancels everything, and copy
// returns when all writers have ended; cancel must end a blocked read of r too.
func (w *writers) copy(ctx context.Context, cancel context.CancelCauseFunc, head filled, r io.Reader) (written, error) {
	w.window, w.digest = newWindow(w.most), newDigest()

	p := producer{
		writers: w, cancel: cancel,
		free: make(chan []byte, w.most+1), // one for each write, and the one that is being read into
	}

	err := p.run(ctx, head, r)
	if err != nil {
		cancel(err)
	}

	p.group.Wait()

	// The first failure is the cause of all others.
	if err := context.Cause(ctx); err != nil {
		return written{length: p.offset}, err
	}

	return written{length: p.offset, digest: w.digest.hex(), writes: p.order, peak: w.window.peakWrites()}, nil
}

// producer cuts a stream into chunks and starts their writes.
type producer struct {
	*writers

	cancel context.CancelCauseFunc
	group  sync.WaitGroup
	free   chan []byte // buffers that no write holds

	offset uint64
	order  int
}

// run cuts the stream into chunks at multiples of chunkSize, however the reads
// fall.
func (p *producer) run(ctx context.Context, f filled, r io.Reader) error {
	for {
		if p.offset+uint64(len(f.data)) > p.limit {
			return fmt.Errorf("the image is longer than its partition table says, over %d bytes", p.limit)
		}

		if err := p.send(ctx, f); err != nil {
			return err
		}

		p.offset += uint64(len(f.data))

		if f.end {
			return nil
		}

		buf := f.data
		if !f.zero {
			buf = p.buffer()
		}

		var err error
		if f, err = fill(r, buf); err != nil {
			return fmt.Errorf("reading the image at byte %d: %w", p.offset+uint64(len(f.data)), err)
		}
	}
}

// buffer is one that no write holds, made only when there is none: small images
// and slow factories need few.
func (p *producer) buffer() []byte {
	select {
	case buf := <-p.free:
		return buf
	default:
		return make([]byte, chunkSize)
	}
}

// filled is what fill has read.
type filled struct {
	data []byte
	zero bool // data stands for zeros, whatever it holds
	end  bool // nothing follows
}

// fill reads one whole chunk into buf's memory, less only at the end. Unlike
// io.ReadFull it keeps apart the end of a stream and a stream that broke off
// and says so with an error that wraps io.ErrUnexpectedEOF.
//
// Three quarters of an image are zeros. As long as a chunk is nothing else, each
// read goes to the chunk's beginning: the same memory stays in the processor's
// cache, and what is read is looked at while it is there.
func fill(r io.Reader, buf []byte) (filled, error) {
	buf = buf[:chunkSize]
	f := filled{data: buf[:0], zero: true}

	for n := 0; n < chunkSize; n = len(f.data) {
		at := n
		if f.zero {
			at = 0
		}

		m, err := r.Read(buf[at : at+chunkSize-n])

		if f.zero && !bytes.Equal(buf[:m], zeros[:m]) {
			f.zero = false

			copy(buf[n:], buf[:m])
			clear(buf[:n])
		}

		f.data = buf[:n+m]

		if err == io.EOF {
			f.end = true

			return f, nil
		}

		if err != nil {
			return f, err
		}
	}

	return f, nil
}

// send starts the write of a chunk, unless it is all zeros. The last one is
// filled up to whole blocks.
func (p *producer) send(ctx context.Context, f filled) error {
	if f.zero {
		p.meter.Skipped(len(f.data))
		p.progress(len(f.data))

		return nil
	}

	c := chunk{order: p.order, offset: p.offset, length: len(f.data), data: f.data}

	if rest := c.length % p.block; rest != 0 {
		c.data = f.data[:c.length+p.block-rest]
		clear(c.data[c.length:])
	}

	if err := p.window.enter(ctx); err != nil {
		return err
	}

	p.order++

	p.group.Go(func() {
		defer p.window.leave()

		if err := p.write(ctx, c); err != nil {
			p.cancel(err)

			return
		}

		p.digest.add(c.order, c.offset, sha256.Sum256(c.data[:c.length]))
		p.meter.Wrote(c.length)
		p.progress(c.length)

		p.free <- c.data[:chunkSize]
	})

	return nil
}

// write writes one chunk, again and again while that can help. The same bytes
// at the same place are harmless however often they arrive.
func (w *writers) write(ctx context.Context, c chunk) error {
	delay := firstChunkPause

	for try := 1; ; try++ {
		start := time.Now()

		err := w.writeOnce(ctx, c)
		if err == nil {
			w.window.wrote(time.Since(start))

			return nil
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		w.window.stumbled()

		if try == chunkTries || !rack.ClassOf(err).Passing() {
			return fmt.Errorf("chunk at offset %d, try %d: %w", c.offset, try, err)
		}

		if w.trouble != nil {
			w.trouble(err, try)
		}

		// Spread, or all writers would come back at the same instant.
		spread := delay * time.Duration(c.order%w.most) / time.Duration(2*w.most)

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
