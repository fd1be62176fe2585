package image_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

// blankDisk takes bulk writes; every so many fail once.
type blankDisk struct {
	mu    sync.Mutex
	data  []byte
	n     int
	every int
	size  int // most bytes in one write
}

func (d *blankDisk) BulkWrite(_ context.Context, _ string, offset uint64, chunk []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.n++
	if d.every > 0 && d.n%d.every == 0 {
		return errOf(rack.ClassBusy, 503)
	}

	d.size = max(d.size, len(chunk))
	copy(d.data[offset:], chunk)

	return nil
}

// Invariant: whatever the length, the zeros, the reads, the writers and the
// failures, the disk holds the stream and then zeros.
func TestTheDiskHoldsTheStream(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		length := rapid.IntRange(1, 6*chunk).Draw(rt, "length")
		block := rapid.SampledFrom([]int{512, 4096}).Draw(rt, "block")
		source := make([]byte, length)

		for range rapid.IntRange(0, 8).Draw(rt, "islands") {
			at := rapid.IntRange(0, length-1).Draw(rt, "at")
			copy(source[at:], bytes.Repeat([]byte{0xa5}, rapid.IntRange(1, chunk).Draw(rt, "of")))
		}

		var r io.Reader = bytes.NewReader(source)
		if rapid.Bool().Draw(rt, "halves") {
			r = iotest.HalfReader(r)
		}

		if rapid.Bool().Draw(rt, "data and end together") {
			r = iotest.DataErrReader(r)
		}

		d := &blankDisk{data: make([]byte, 7*chunk), every: rapid.IntRange(0, 5).Draw(rt, "every") * 2}
		count := rapid.IntRange(1, 9).Draw(rt, "writers")

		synctest.Test(t, func(st *testing.T) {
			ctx, cancel := context.WithCancelCause(st.Context())
			defer cancel(nil)

			n, err := image.Copy(ctx, cancel, d, count, block, uint64(len(d.data)), r)
			if err != nil || n != uint64(length) {
				rt.Fatalf("%d of %d bytes: %v", n, length, err)
			}
		})

		if !bytes.Equal(d.data[:length], source) || bytes.IndexByte(d.data[length:], 0xa5) >= 0 || d.size > chunk {
			rt.Fatal("the disk is not the stream")
		}
	})
}

// Invariant: the first failure is the one that is told, whichever side it is
// on, and nobody is left waiting.
func TestTheFirstFailureIsTold(t *testing.T) {
	t.Parallel()

	broken := errors.New("broken stream")

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := io.MultiReader(bytes.NewReader(disk(4, 512)), iotest.ErrReader(broken))

		if _, err := image.Copy(ctx, cancel, &blankDisk{data: make([]byte, 8*chunk)}, 3, 512, 8*chunk, r); !errors.Is(err, broken) {
			t.Error(err)
		}
	})

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		// The stream stands still until the failed write ends its context.
		r := io.MultiReader(bytes.NewReader(disk(4, 512)), blocked{ctx})

		_, err := image.Copy(ctx, cancel, &blankDisk{every: 1}, 3, 512, 8*chunk, r)
		if rack.ClassOf(err) != rack.ClassBusy {
			t.Error(err)
		}
	})
}

type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()

	return 0, context.Cause(b.ctx)
}
