package rack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"
)

const chunkSize = 512 << 10

// layer is frozen content: chunks over those of an older layer. Chunks are
// never changed once they stand in one, so disks, snapshots and images that
// stem from each other share them.
type layer struct {
	base   *layer
	chunks map[int64][]byte
}

func (l *layer) chunk(i int64) []byte {
	for ; l != nil; l = l.base {
		if c, has := l.chunks[i]; has {
			return c
		}
	}

	return nil
}

// content is what stands on a disk, in chunks of chunkSize. A chunk of zeros
// is nil, and absent where no older layer has another.
type content struct {
	size int64

	mu   sync.RWMutex
	base *layer
	own  map[int64][]byte
}

func newContent(size int64, base *layer) *content {
	return &content{size: size, base: base, own: map[int64][]byte{}}
}

var zeros [chunkSize]byte

// write stores data, which the content owns from then on.
func (c *content) write(offset int64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for len(data) > 0 {
		i, at := offset/chunkSize, offset%chunkSize
		n := min(int64(len(data)), chunkSize-at)

		c.put(i, at, data[:n:n])

		data, offset = data[n:], offset+n
	}
}

func (c *content) put(i, at int64, part []byte) {
	chunk := part

	if len(part) < chunkSize {
		chunk = make([]byte, chunkSize)
		copy(chunk, c.chunkLocked(i))
		copy(chunk[at:], part)
	}

	switch {
	case !bytes.Equal(chunk, zeros[:]):
		c.own[i] = chunk
	case c.base.chunk(i) != nil:
		c.own[i] = nil
	default:
		delete(c.own, i)
	}
}

func (c *content) chunkLocked(i int64) []byte {
	if chunk, has := c.own[i]; has {
		return chunk
	}

	return c.base.chunk(i)
}

// freeze gives the content as it is now, shared from then on.
func (c *content) freeze() *layer {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.own) > 0 {
		c.base = &layer{base: c.base, chunks: c.own}
		c.own = map[int64][]byte{}
	}

	return c.base
}

// ReadAt makes the content an io.ReaderAt over the whole disk.
func (c *content) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 || offset >= c.size {
		return 0, io.EOF
	}

	c.mu.RLock()
	defer c.mu.RUnlock()

	read := 0

	for read < len(p) && offset < c.size {
		at := offset % chunkSize
		n := int(min(int64(len(p)-read), chunkSize-at, c.size-offset))
		dst := p[read : read+n]

		if chunk := c.chunkLocked(offset / chunkSize); chunk != nil {
			copy(dst, chunk[at:])
		} else {
			clear(dst)
		}

		read += n
		offset += int64(n)
	}

	if read < len(p) {
		return read, io.EOF
	}

	return read, nil
}

// digest is the SHA-256 of the first length bytes in hex; 0 is all of them.
func (c *content) digest(length int64) (string, error) {
	if length <= 0 || length > c.size {
		length = c.size
	}

	h := sha256.New()
	if _, err := io.CopyBuffer(h, io.NewSectionReader(c, 0, length), make([]byte, chunkSize)); err != nil {
		return "", err
	}

	return hex.EncodeToString(h.Sum(nil)), nil
}

// DiskReader reads a disk as it is at each read, and tells its size.
func (s *Server) DiskReader(id string) (io.ReaderAt, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	d, found := s.disks.get(id)
	if !found {
		return nil, 0, notFound(kindDisk, id)
	}

	return d.content, d.size, nil
}

// ImageReader reads an image, and tells its size.
func (s *Server) ImageReader(id string) (io.ReaderAt, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	m, found := s.images.get(id)
	if !found {
		return nil, 0, notFound(kindImage, id)
	}

	return newContent(m.size, m.layer), m.size, nil
}

// ImageDigest is the SHA-256, in hex, of the first length bytes of an image;
// 0 means the whole of it, the zeros after the uploaded bytes included.
func (s *Server) ImageDigest(id string, length int64) (string, error) {
	s.mu.Lock()
	m, found := s.images.get(id)
	s.mu.Unlock()

	if !found {
		return "", notFound(kindImage, id)
	}

	return newContent(m.size, m.layer).digest(length)
}
