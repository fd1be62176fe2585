package factory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

// copyBuffer is the piece in which images are read.
const copyBuffer = 1 << 20

// reader ends the reading of an image with ctx.
type reader struct {
	ctx context.Context // io.Reader has no other place for it
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}

	return r.r.Read(p)
}

// encodeZstd writes one frame with an 8 MiB window, the content size and a
// checksum, as Talos' imager does.
func encodeZstd(ctx context.Context, w io.Writer, image *talosimage.Image) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(8<<20), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}

	enc.ResetContentSize(w, image.Size())

	if _, err := io.CopyBuffer(struct{ io.Writer }{enc}, reader{ctx, image.Reader()}, make([]byte, copyBuffer)); err != nil {
		return errors.Join(err, enc.Close())
	}

	return enc.Close()
}

// The fixed parts of an xz stream (the .xz file format, 2.1).
const (
	xzHeader = 12
	xzFooter = 12
)

// encodeXZ writes one stream of blocks of 1 MiB, as Talos' imager does. Blocks
// do not depend on each other, so the one of zeros is made only once, which is
// most of the work.
func encodeXZ(ctx context.Context, w io.Writer, image *talosimage.Image) error {
	var (
		in     = reader{ctx, image.Reader()}
		piece  = make([]byte, copyBuffer)
		zeros  = make([]byte, copyBuffer)
		zero   *xzBlock
		index  []xzBlock
		stream []byte
	)

	for {
		n, err := io.ReadFull(in, piece)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}

		isZero := n == len(zeros) && bytes.Equal(piece, zeros)

		block := zero
		if !isZero || zero == nil {
			if block, stream, err = encodeBlock(piece[:n]); err != nil {
				return err
			}
		}

		if isZero {
			zero = block
		}

		if len(index) == 0 {
			if _, err := w.Write(stream[:xzHeader]); err != nil {
				return err
			}
		}

		if _, err := w.Write(block.data); err != nil {
			return err
		}

		index = append(index, xzBlock{unpadded: block.unpadded, size: block.size})
	}

	return writeIndex(w, index, stream)
}

// xzBlock is a block as it stands in a stream, with its sizes for the index.
type xzBlock struct {
	data           []byte
	unpadded, size uint64
}

// encodeBlock compresses data to a stream of one block and cuts the block out.
func encodeBlock(data []byte) (block *xzBlock, stream []byte, err error) {
	var buf bytes.Buffer

	w, err := xz.WriterConfig{DictCap: 256 << 10, BlockSize: copyBuffer}.NewWriter(&buf)
	if err != nil {
		return nil, nil, err
	}

	if _, err := w.Write(data); err != nil {
		return nil, nil, err
	}

	if err := w.Close(); err != nil {
		return nil, nil, err
	}

	stream = buf.Bytes()

	footer := stream[len(stream)-xzFooter:]
	indexSize := (int(binary.LittleEndian.Uint32(footer[4:])) + 1) * 4
	start := len(stream) - xzFooter - indexSize
	index := stream[start:]

	records, n := binary.Uvarint(index[1:])
	if records != 1 {
		return nil, nil, fmt.Errorf("compressing a block: the encoder made %d", records)
	}

	unpadded, m := binary.Uvarint(index[1+n:])
	size, _ := binary.Uvarint(index[1+n+m:])

	data, grown := withSizes(stream[xzHeader:start], unpadded, size, stream[7])

	return &xzBlock{data: data, unpadded: unpadded + grown, size: size}, stream, nil
}

// withSizes writes the block's sizes into its header, as the xz program does
// when it works with several threads and the encoder at hand does not. It also
// tells by how much the block has grown.
func withSizes(block []byte, unpadded, size uint64, check byte) ([]byte, uint64) {
	old := (int(block[0]) + 1) * 4
	sums := uint64([16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}[check&15])
	compressed := unpadded - uint64(old) - sums

	header := []byte{0, block[1] | 0xc0}
	header = binary.AppendUvarint(header, compressed)
	header = binary.AppendUvarint(header, size)
	header = append(header, block[2:2+3]...) // the one filter, LZMA2: its ID, the length of its properties, and these

	for len(header)%4 != 0 {
		header = append(header, 0)
	}

	header[0] = byte(len(header) / 4) // the checksum counts
	header = binary.LittleEndian.AppendUint32(header, crc32.ChecksumIEEE(header))

	return append(header, block[old:]...), uint64(len(header) - old)
}

// writeIndex ends a stream of the given blocks. Its flags are those of model.
func writeIndex(w io.Writer, blocks []xzBlock, model []byte) error {
	index := binary.AppendUvarint([]byte{0}, uint64(len(blocks)))

	for _, b := range blocks {
		index = binary.AppendUvarint(index, b.unpadded)
		index = binary.AppendUvarint(index, b.size)
	}

	for len(index)%4 != 0 {
		index = append(index, 0)
	}

	index = binary.LittleEndian.AppendUint32(index, crc32.ChecksumIEEE(index))

	tail := binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1))
	tail = append(tail, model[6], model[7])

	footer := binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(tail))
	footer = append(append(footer, tail...), 'Y', 'Z')

	_, err := w.Write(append(index, footer...))

	return err
}
