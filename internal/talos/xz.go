package talos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/mikelolasagasti/xz"
)

// The decoder is a port of XZ Embedded to Go, github.com/mikelolasagasti/xz. Of
// the pure-Go decoders it takes two thirds of the time of the next one, decodes
// in place with no buffer beside the dictionary, checks the index, and has a
// keeper who ships it in a distribution.
//
// None of them decodes blocks side by side. An image of Talos has one block for
// each MiB, each of which tells its sizes, so this file hands whole blocks to
// as many decoders as there are processors. Each gets its block as a stream of
// its own: the header before it, an index and a footer after it. A stream of
// blocks that do not tell their sizes, or are large, is decoded as one.

const (
	// maxXZBlock bounds both sizes of a block that is decoded beside others; in
	// Talos' images they are 1 MiB.
	maxXZBlock = 2 << 20
	// maxXZBlocks bounds what is remembered of a stream until its index comes.
	maxXZBlocks = 1 << 20
	// maxXZDecoders bounds memory on machines with many processors.
	maxXZDecoders = 4
)

// xzReader decodes xz. It reads its input only within Read.
type xzReader struct {
	in   *bufio.Reader
	free []*xzBlock // not in use
	room int        // more of them may be made
	next []*xzBlock // being decoded or decoded, in their order
	work sync.WaitGroup

	inStream bool
	first    bool // no stream has been read yet
	header   [xzHeaderSize]byte
	records  []xzRecord // of the stream's blocks so far

	whole io.Reader // decodes all that is left, when blocks can not be told apart
	end   error     // what ended the input
	err   error     // what ended the output
}

func newXZReader(in *bufio.Reader) (*xzReader, error) {
	x := &xzReader{in: in, first: true, room: min(runtime.GOMAXPROCS(0), maxXZDecoders) + 1}

	if err := x.advance(); err != nil && !errors.Is(err, io.EOF) {
		x.Close()

		return nil, err
	}

	return x, nil
}

// Close waits for decoders that still run.
func (x *xzReader) Close() { x.work.Wait() }

// Read implements io.Reader.
func (x *xzReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}

	for x.err == nil {
		for x.mayAdvance() {
			x.end = x.advance()
		}

		switch {
		case len(x.next) > 0:
			if n := x.deliver(p); n > 0 {
				return n, nil
			}
		case x.whole != nil:
			n, err := x.whole.Read(p)
			x.err = named(err)

			return n, x.err
		default:
			x.err = x.end
		}
	}

	return 0, x.err
}

// mayAdvance tells whether there is room for one more block and nothing ready
// to be delivered.
func (x *xzReader) mayAdvance() bool {
	if x.end != nil || x.whole != nil || len(x.free) == 0 && x.room == 0 {
		return false
	}

	return len(x.next) == 0 || !x.next[0].ended()
}

// deliver copies from the first block, once it is decoded.
func (x *xzReader) deliver(p []byte) int {
	b := x.next[0]

	<-b.done

	if b.err != nil {
		x.err = named(b.err)

		return 0
	}

	n := copy(p, b.out)
	b.out = b.out[n:]

	if len(b.out) == 0 {
		x.next = x.next[1:]
		x.free = append(x.free, b)
	}

	return n
}

// advance reads the input up to the end of one block and starts its decoder.
func (x *xzReader) advance() error {
	if !x.inStream {
		return x.beginStream()
	}

	h, err := x.peekBlock(0)

	switch {
	case err != nil:
		return err
	case h.size == 0:
		x.inStream = false

		return x.checkIndex()
	case !h.splits():
		return errors.New("an xz block that does not tell its sizes, or is large, follows others")
	case len(x.records) == maxXZBlocks:
		return fmt.Errorf("more than %d xz blocks", maxXZBlocks)
	}

	b := x.block()
	if err := b.read(x.in, x.header, h); err != nil {
		return err
	}

	x.records = append(x.records, h.record(xzCheckSize(x.header)))
	x.next = append(x.next, b)
	b.done = make(chan struct{})

	x.work.Go(b.decode)

	return nil
}

// beginStream reads the header of the first or another stream.
func (x *xzReader) beginStream() error {
	if !x.first {
		if err := skipPadding(x.in); err != nil {
			return err
		}
	}

	start, err := x.in.Peek(xzHeaderSize)
	if err != nil {
		return early(err)
	}

	x.first = false
	copy(x.header[:], start)

	if !validXZHeader(x.header) {
		return errors.New("the header of an xz stream is damaged")
	}

	h, err := x.peekBlock(xzHeaderSize)
	if err != nil {
		return err
	}

	if h.size > 0 && !h.splits() {
		if x.whole, err = xz.NewReader(x.in, maxWindow); err != nil {
			return named(err)
		}

		return nil
	}

	x.inStream, x.records = true, x.records[:0]

	_, err = x.in.Discard(xzHeaderSize)

	return err
}

// block answers one that is not in use. There is room for it.
func (x *xzReader) block() *xzBlock {
	if n := len(x.free); n > 0 {
		b := x.free[n-1]
		x.free = x.free[:n-1]

		return b
	}

	x.room--

	return &xzBlock{}
}

// named says in our words what only a word of the library's says.
func named(err error) error {
	if errors.Is(err, xz.ErrMemlimit) {
		return fmt.Errorf("unpacking needs a window of more than %d MiB", maxWindow>>20)
	}

	return err
}

// early is the error of an input that ends where it must not.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}

	return err
}

// skipPadding passes over the zeros between streams, four at a time. io.EOF
// means that nothing else follows.
func skipPadding(in *bufio.Reader) error {
	for {
		word, err := in.Peek(4)

		switch {
		case len(word) == 0:
			return err
		case word[0] != 0:
			return nil
		case err != nil:
			return early(err)
		case string(word) != "\x00\x00\x00\x00":
			return errors.New("what follows an xz stream is damaged")
		}

		if _, err := in.Discard(len(word)); err != nil {
			return err
		}
	}
}
