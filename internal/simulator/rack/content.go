package rack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

const chunkSize = 512 << 10

// ContentMode says what the rack does with the bytes that it is sent.
type ContentMode string

// The modes. Guests boot from what is kept, so only with ContentKept do they
// come up from an uploaded image.
const (
	ContentKept   ContentMode = "keep" // the default: chunks that are not zero are kept
	ContentHashed ContentMode = "hash" // of whole chunks only the SHA-256 is kept
	ContentNone   ContentMode = "none" // nothing is kept: all reads as unknown
)

func (m ContentMode) check() error {
	switch m {
	case ContentKept, ContentHashed, ContentNone:
		return nil
	}

	return fmt.Errorf("content mode is %q: it can be keep, hash or none", string(m))
}

// errNotKept is what reading gives that a ContentMode has let go.
var errNotKept = errors.New("the simulated rack did not keep this content")

// chunk is a written part of a disk, never changed once it is there. A nil one
// is zeros.
type chunk struct {
	data []byte // of chunkSize, or nil
	sum  [sha256.Size]byte
	kept bool // data or sum is that of the content
}

func (c *chunk) digest() ([sha256.Size]byte, error) {
	switch {
	case !c.kept:
		return c.sum, errNotKept
	case c.data != nil:
		return sha256.Sum256(c.data), nil
	default:
		return c.sum, nil
	}
}

// layer is frozen content: chunks over those of an older layer, so that disks,
// snapshots and images that stem from each other share them.
type layer struct {
	base   *layer
	chunks map[int64]*chunk
}

func (l *layer) chunk(i int64) *chunk {
	for ; l != nil; l = l.base {
		if c, has := l.chunks[i]; has {
			return c
		}
	}

	return nil
}

// content is what stands on a disk, in chunks of chunkSize. A chunk of zeros
// is absent where no older layer has another.
type content struct {
	size int64
	mode ContentMode

	mu   sync.RWMutex
	base *layer
	own  map[int64]*chunk
}

func newContent(size int64, base *layer, mode ContentMode) *content {
	return &content{size: size, base: base, mode: mode}
}

var zeros [chunkSize]byte

// write stores data, which stays the caller's.
func (c *content) write(offset int64, data []byte) {
	for len(data) > 0 {
		i, at := offset/chunkSize, offset%chunkSize
		n := min(int64(len(data)), chunkSize-at)

		if n == chunkSize {
			made := c.whole(data[:n]) // most of the work, and no lock is held

			c.mu.Lock()
			c.put(i, made)
			c.mu.Unlock()
		} else {
			c.part(i, at, data[:n])
		}

		data, offset = data[n:], offset+n
	}
}

// whole makes a chunk of all its bytes.
func (c *content) whole(data []byte) *chunk {
	switch {
	case c.mode == ContentNone:
		return &chunk{}
	case bytes.Equal(data, zeros[:]):
		return nil
	case c.mode == ContentHashed:
		return &chunk{sum: sha256.Sum256(data), kept: true}
	default:
		return &chunk{data: bytes.Clone(data), kept: true}
	}
}

// part writes over a part of a chunk. Its data is kept in any mode but
// ContentNone, since a digest of parts is none.
func (c *content) part(i, at int64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()

	old := c.chunkLocked(i)
	if c.mode == ContentNone || old != nil && old.data == nil {
		c.put(i, &chunk{})

		return
	}

	made := &chunk{data: make([]byte, chunkSize), kept: true}
	if old != nil {
		copy(made.data, old.data)
	}

	copy(made.data[at:], data)

	if bytes.Equal(made.data, zeros[:]) {
		made = nil
	}

	c.put(i, made)
}

func (c *content) put(i int64, made *chunk) {
	if made == nil && c.base.chunk(i) == nil {
		delete(c.own, i)

		return
	}

	if c.own == nil {
		c.own = map[int64]*chunk{}
	}

	c.own[i] = made
}

func (c *content) chunkLocked(i int64) *chunk {
	if made, has := c.own[i]; has {
		return made
	}

	return c.base.chunk(i)
}

// freeze gives the content as it is now, shared from then on.
func (c *content) freeze() *layer {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.own) > 0 {
		c.base = &layer{base: c.base, chunks: c.own}
		c.own = nil
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

		switch made := c.chunkLocked(offset / chunkSize); {
		case made == nil:
			clear(dst)
		case made.data == nil:
			return read, errNotKept
		default:
			copy(dst, made.data[at:])
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

// ChunkDigest is the SHA-256, in hex, of 512 KiB at an offset.
type ChunkDigest struct {
	Offset int64  `json:"offset"`
	SHA256 string `json:"sha256"`
}

// digests are those of all chunks that are not zero, in order.
func (c *content) digests() ([]ChunkDigest, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()

	all := map[int64]*chunk{}

	var layers []*layer
	for l := c.base; l != nil; l = l.base {
		layers = append(layers, l)
	}

	for _, l := range slices.Backward(layers) {
		maps.Copy(all, l.chunks)
	}

	maps.Copy(all, c.own)

	out := []ChunkDigest{}

	for _, i := range slices.Sorted(maps.Keys(all)) {
		if all[i] == nil {
			continue
		}

		sum, err := all[i].digest()
		if err != nil {
			return nil, fmt.Errorf("bytes at %d: %w", i*chunkSize, err)
		}

		out = append(out, ChunkDigest{i * chunkSize, hex.EncodeToString(sum[:])})
	}

	return out, nil
}
