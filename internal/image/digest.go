package image

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"sync"
)

// digest sums what was written: for each chunk that is not all zeros, in the
// order of their places, its index as eight bytes, the most significant first,
// and the SHA-256 of its bytes of the image. With the image's length it says
// all about the disk that was made. The form is recorded and must not change.
type digest struct {
	mu   sync.Mutex
	sum  hash.Hash
	next int                // the chunk that is summed next, by order
	done map[int]chunkEntry // later ones, by order
}

type chunkEntry [8 + sha256.Size]byte

func newDigest() *digest { return &digest{sum: sha256.New(), done: map[int]chunkEntry{}} }

// add notes the order-th chunk, from 0, that is not zeros. Writers add in
// whatever order they end.
func (d *digest) add(order int, offset uint64, sum [sha256.Size]byte) {
	var e chunkEntry

	binary.BigEndian.PutUint64(e[:], offset/chunkSize)
	copy(e[8:], sum[:])

	d.mu.Lock()
	defer d.mu.Unlock()

	d.done[order] = e

	for {
		e, ok := d.done[d.next]
		if !ok {
			return
		}

		d.sum.Write(e[:])
		delete(d.done, d.next)
		d.next++
	}
}

// hex is the digest once all chunks were added.
func (d *digest) hex() string {
	d.mu.Lock()
	defer d.mu.Unlock()

	return hex.EncodeToString(d.sum.Sum(nil))
}
