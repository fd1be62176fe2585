package image_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
)

// pieces reads what it is made of in pieces of given lengths.
type pieces struct {
	data    []byte
	lengths []byte
	n       int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}

	length := 1
	if len(p.lengths) > 0 {
		length += int(p.lengths[p.n%len(p.lengths)]) * 4099
		p.n++
	}

	n := copy(b, p.data[:min(length, len(p.data))])
	p.data = p.data[n:]

	return n, nil
}

// FuzzChunks: however the reads fall, zeros and data land where they belong.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("begin"), uint32(3*chunk), []byte("end"), []byte{9, 0, 255})
	f.Add([]byte{}, uint32(chunk), []byte{1}, []byte{})
	f.Add([]byte{0, 0, 1}, uint32(0), []byte{}, []byte{1, 2, 3})

	f.Fuzz(func(t *testing.T, first []byte, gap uint32, last, lengths []byte) {
		data := append(bytes.Clone(first), make([]byte, gap%(4*chunk))...)
		data = append(data, last...)

		d := &blankDisk{data: make([]byte, (len(data)/chunk+2)*chunk)}
		ctx, cancel := context.WithCancelCause(t.Context())

		defer cancel(nil)

		n, err := image.Copy(ctx, cancel, d, 3, 512, uint64(len(d.data)), &pieces{data: data, lengths: lengths})
		if err != nil || n != uint64(len(data)) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}

		if !bytes.Equal(d.data[:len(data)], data) || bytes.Count(d.data[len(data):], []byte{0}) != len(d.data)-len(data) {
			t.Fatal("the disk is not the stream")
		}
	})
}
