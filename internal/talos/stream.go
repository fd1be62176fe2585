package talos

import (
	"bufio"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// inputBuffer stands between body and decoder.
	inputBuffer = 256 << 10
	// headSize is how much of the disk is decoded at once to find its size: both
	// kinds of partition table end within 24 KiB.
	headSize = 128 << 10
	// maxWindow bounds the memory of a decoder; Talos' images use 8 MiB with zstd
	// and 256 KiB with xz.
	maxWindow = 64 << 20
	// roomyWindow is the largest window for which the decoder has twice the memory.
	roomyWindow = 8 << 20
)

// Stream is the raw disk of an image while it is downloaded. Its methods are
// for one goroutine, except Downloaded.
type Stream struct {
	about   FactoryError
	src     *source
	in      *bufio.Reader
	decoder io.Reader
	release func()

	head []byte // decoded already, not yet read
	end  error  // what ended the decoder
	err  error  // what ended the stream
	size uint64
	read uint64
}

// newStream finds out what src is, and how long the disk is that it holds.
func newStream(about FactoryError, src *source) (*Stream, error) {
	s := &Stream{about: about, src: src, in: bufio.NewReaderSize(src, inputBuffer), release: func() {}}

	start, err := s.in.Peek(512)
	if failure := src.failure(); len(start) == 0 && failure != nil {
		return nil, s.explain(err)
	}

	declared, err := s.decode(start)
	if err != nil {
		return nil, s.explain(err)
	}

	if err := s.readHead(); err != nil {
		s.release()

		return nil, s.explain(err)
	}

	disk, err := parseGPT(s.head)
	if err != nil {
		s.release()

		return nil, about.with(KindContent, 0, fmt.Errorf("the image is no disk: %w", err))
	}

	// A frame that declares less than the partition table is the first of
	// several, or cut: the length at the end will tell.
	s.size = max(disk.Size, declared)

	return s, nil
}

// decode sets the decoder by what the stream starts with. It returns the length
// of the disk if the stream declares it, else 0.
func (s *Stream) decode(start []byte) (uint64, error) {
	kind := sniff(start)

	switch kind {
	case contentZstd:
		var header zstd.Header

		if err := header.Decode(start); err != nil {
			return 0, fmt.Errorf("reading the zstd frame header: %w", err)
		}

		if header.WindowSize > maxWindow {
			return 0, fmt.Errorf("unpacking needs a window of %d MiB, more than the %d MiB that it may", header.WindowSize>>20, maxWindow>>20)
		}

		// One goroutine at most: none of its own. With the smallest buffer the
		// decoder would move the whole window for each MiB, which for three
		// quarters of zeros is as much work as the rest of the decoding; a larger
		// window than Talos' is not worth twice its memory.
		d, err := zstd.NewReader(s.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(header.WindowSize > roomyWindow),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return 0, fmt.Errorf("reading zstd: %w", err)
		}

		s.decoder, s.release = d, d.Close

		return header.FrameContentSize, nil
	case contentXZ:
		d, err := newXZReader(s.in)
		if err != nil {
			return 0, fmt.Errorf("reading xz: %w", err)
		}

		s.decoder, s.release = d, d.Close
	case contentGzip:
		d, err := gzip.NewReader(s.in)
		if err != nil {
			return 0, fmt.Errorf("reading gzip: %w", err)
		}

		s.decoder = d
	case contentDisk:
		s.decoder = s.in
	default:
		return 0, fmt.Errorf("the answer is %s, not a disk image", kind)
	}

	return 0, nil
}

// readHead decodes up to headSize bytes. An early end of the stream is no error
// here.
func (s *Stream) readHead() error {
	head := make([]byte, headSize)
	n := 0

	for n < len(head) && s.end == nil {
		var m int

		m, s.end = s.decoder.Read(head[n:])
		n += m
	}

	s.head = head[:n]

	if s.end != nil && !errors.Is(s.end, io.EOF) {
		return s.end
	}

	return nil
}

// Read gives the raw disk. It ends with io.EOF only when everything was right;
// other errors are of type *FactoryError.
func (s *Stream) Read(p []byte) (int, error) {
	if s.err != nil || len(p) == 0 {
		return 0, s.err
	}

	n := copy(p, s.head)
	s.head = s.head[n:]

	if len(s.head) == 0 {
		s.head = nil
	}

	if n == 0 && s.end == nil {
		n, s.end = s.decoder.Read(p)
	}

	s.read += uint64(n) //nolint:gosec // not negative

	switch {
	case s.read > s.size:
		s.err = s.about.with(KindContent, 0, fmt.Errorf("the disk is longer than the %d bytes its partition table says", s.size))
	case s.end == nil || len(s.head) > 0:
	case errors.Is(s.end, io.EOF):
		s.err = s.finish()
	default:
		s.err = s.explain(s.end)
	}

	return n, s.err
}

// finish checks what can only be checked at the end.
func (s *Stream) finish() error {
	// A decoder may stop before the end of its input.
	rest, err := s.in.Discard(1)

	switch {
	case s.src.failure() != nil:
		return s.explain(err)
	case rest > 0:
		return s.about.with(KindContent, 0, errors.New("bytes follow the end of the image"))
	case s.read != s.size:
		return s.about.with(KindContent, 0, fmt.Errorf("the disk ended after %d of %d bytes", s.read, s.size))
	}

	return io.EOF
}

// explain prefers the error of the source to what the decoder made of it.
func (s *Stream) explain(err error) error {
	if failure := s.src.failure(); failure != nil {
		if f, ok := errors.AsType[*FactoryError](failure); ok {
			return f
		}

		if errors.Is(failure, errTruncated) {
			return s.about.with(KindContent, 0, failure)
		}

		return s.about.with(KindTransport, 0, bare(failure))
	}

	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.about.with(KindContent, 0, fmt.Errorf("the compressed stream ends early, after %d bytes", s.src.done.Load()))
	}

	return s.about.with(KindContent, 0, err)
}

// Size is the length of the raw disk in bytes, from its partition table and the
// compressed stream's header. Reading to io.EOF proves it.
func (s *Stream) Size() uint64 { return s.size }

// Name is the name of the file at the factory.
func (s *Stream) Name() string { return s.about.File }

// SHA256 is the hex digest of the answer as it was sent. It is only complete
// after io.EOF, and "" before.
func (s *Stream) SHA256() string {
	if !errors.Is(s.err, io.EOF) {
		return ""
	}

	return hex.EncodeToString(s.src.sum.Sum(nil))
}

// Downloaded tells how many bytes of the answer have come and how many there
// are, -1 if that is not known. It may be called at any time.
func (s *Stream) Downloaded() (done, total int64) { return s.src.done.Load(), s.src.total }

// Close ends the download. It must not be called during a Read; end the context
// given to Open for that.
func (s *Stream) Close() error {
	s.release()
	s.release = func() {}
	s.src.Close()

	if s.err == nil {
		s.err = errors.New("reading an image: the stream is closed")
	}

	return nil
}
