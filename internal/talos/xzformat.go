package talos

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/mikelolasagasti/xz"
)

// The parts of an xz stream, as in the format's description, version 1.2.1:
// header, blocks, index, footer. Sizes are in bytes.
const (
	xzHeaderSize   = 12
	xzFooterSize   = 12
	xzMaxBlockHead = 1024
	xzMagic        = "\xfd7zXZ\x00"
	xzFooterMagic  = "YZ"
)

var errXZIndex = errors.New("the index of an xz stream does not fit its blocks")

// xzBlockHead is what the header of a block tells.
type xzBlockHead struct {
	size         int // of the header; 0 is the index
	compressed   uint64
	uncompressed uint64
	sized        bool // both sizes are told
}

// splits tells whether the block can be decoded beside others.
func (h xzBlockHead) splits() bool {
	return h.sized && h.compressed > 0 && h.compressed <= maxXZBlock && h.uncompressed <= maxXZBlock
}

// xzRecord is what the index says of a block.
type xzRecord struct{ unpadded, uncompressed uint64 }

func (h xzBlockHead) record(check int) xzRecord {
	return xzRecord{unpadded: uint64(h.size) + h.compressed + uint64(check), uncompressed: h.uncompressed} //nolint:gosec // both small
}

func validXZHeader(h [xzHeaderSize]byte) bool {
	return string(h[:6]) == xzMagic && h[6] == 0 && h[7] < 16 && crc32.ChecksumIEEE(h[6:8]) == binary.LittleEndian.Uint32(h[8:])
}

// xzCheckSize is the size of the check after each block of a stream.
func xzCheckSize(header [xzHeaderSize]byte) int {
	return [16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}[header[7]&15]
}

// peekBlock reads the header of a block that begins skip bytes further on.
func (x *xzReader) peekBlock(skip int) (xzBlockHead, error) {
	b, err := x.in.Peek(skip + 1)
	if err != nil {
		return xzBlockHead{}, early(err)
	}

	if b[skip] == 0 {
		return xzBlockHead{}, nil
	}

	h := xzBlockHead{size: (int(b[skip]) + 1) * 4}

	if b, err = x.in.Peek(skip + h.size); err != nil {
		return h, early(err)
	}

	b = b[skip:]
	body, sum := b[:h.size-4], binary.LittleEndian.Uint32(b[h.size-4:])

	if crc32.ChecksumIEEE(body) != sum {
		return h, errors.New("the header of an xz block is damaged")
	}

	if flags := body[1]; flags&0xc0 != 0xc0 {
		return h, nil
	}

	rest := body[2:]

	var ok bool
	if h.compressed, rest, ok = xzNumber(rest); !ok {
		return h, nil
	}

	h.uncompressed, _, h.sized = xzNumber(rest)

	return h, nil
}

// xzNumber reads a number of up to 63 bits, seven in each byte.
func xzNumber(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size < 1 || size > 9 || size > 1 && b[size-1] == 0 {
		return 0, nil, false
	}

	return n, b[size:], true
}

// checkIndex reads the index and the footer and holds them against the blocks.
func (x *xzReader) checkIndex() error {
	index := xzIndex(x.records)
	got := make([]byte, len(index)+xzFooterSize)

	if _, err := io.ReadFull(x.in, got); err != nil {
		return early(err)
	}

	if !bytes.Equal(got[:len(index)], index) || !bytes.Equal(got[len(index):], xzFooter(len(index), x.header)) {
		return errXZIndex
	}

	return nil
}

// xzIndex is the one index that fits the blocks: the format leaves no choice.
func xzIndex(records []xzRecord) []byte {
	b := binary.AppendUvarint([]byte{0}, uint64(len(records)))

	for _, r := range records {
		b = binary.AppendUvarint(binary.AppendUvarint(b, r.unpadded), r.uncompressed)
	}

	for len(b)%4 != 0 {
		b = append(b, 0)
	}

	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func xzFooter(index int, header [xzHeaderSize]byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(index/4-1)) //nolint:gosec // maxXZBlocks bounds it
	b = append(b, header[6:8]...)
	b = append(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)), b...)

	return append(b, xzFooterMagic...)
}

// xzBlock is a block while it is decoded. Its memory is used again.
type xzBlock struct {
	in     []byte // a whole stream around the one block
	buf    []byte
	out    []byte // decoded and not yet delivered
	reader *xz.Reader
	done   chan struct{}
	err    error
}

// read takes the block from the input and makes a stream of it.
func (b *xzBlock) read(in *bufio.Reader, header [xzHeaderSize]byte, h xzBlockHead) error {
	check := xzCheckSize(header)
	size := h.size + int(h.compressed+3)/4*4 + check //nolint:gosec // maxXZBlock bounds it

	b.in = append(b.in[:0], header[:]...)

	if need := xzHeaderSize + size; cap(b.in) < need {
		b.in = append(make([]byte, 0, need+xzMaxBlockHead), b.in...)
	}

	b.in = b.in[:xzHeaderSize+size]

	if _, err := io.ReadFull(in, b.in[xzHeaderSize:]); err != nil {
		return early(err)
	}

	index := xzIndex([]xzRecord{h.record(check)})
	b.in = append(append(b.in, index...), xzFooter(len(index), header)...)

	if uint64(cap(b.buf)) < h.uncompressed {
		b.buf = make([]byte, h.uncompressed)
	}

	b.out, b.err = b.buf[:h.uncompressed], nil

	return nil
}

// decode is the work of a goroutine of its own.
func (b *xzBlock) decode() {
	defer close(b.done)

	b.err = b.decodeAll()
}

func (b *xzBlock) decodeAll() error {
	in := bytes.NewReader(b.in)

	var err error
	if b.reader == nil {
		b.reader, err = xz.NewReader(in, maxWindow)
	} else {
		err = b.reader.Reset(in)
	}

	if err != nil {
		b.reader = nil

		return err
	}

	if _, err := io.ReadFull(b.reader, b.out); err != nil {
		return early(err)
	}

	var more [1]byte

	n, err := b.reader.Read(more[:])
	if n > 0 {
		return errXZIndex
	}

	if !errors.Is(err, io.EOF) {
		return err
	}

	return nil
}

// ended tells whether the block is decoded, well or badly.
func (b *xzBlock) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}
