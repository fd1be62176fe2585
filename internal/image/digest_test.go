package image

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"
)

// Invariant: the digest tells places and bytes, and not in which order the
// writes ended.
func TestTheDigestIsInTheOrderOfPlaces(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		indexes := rapid.SliceOfNDistinct(rapid.Uint64Range(0, 1<<20), 0, 50, rapid.ID[uint64]).Draw(t, "indexes")
		order := rapid.Permutation(rangeOf(len(indexes))).Draw(t, "order")

		var text []byte

		for _, i := range indexes {
			sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
			text = append(binary.BigEndian.AppendUint64(text, i), sum[:]...)
		}

		d := newDigest()
		for _, n := range order {
			i := indexes[n]
			d.add(n, i*chunkSize, sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
		}

		if want := sha256.Sum256(text); d.hex() != hex.EncodeToString(want[:]) || len(d.done) != 0 {
			t.Fatalf("%s, %d left", d.hex(), len(d.done))
		}
	})
}

func rangeOf(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}

	return all
}
