package rack

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"sync"
)

// pairs gives the 12 bits of two characters of base64, taken as a little-endian
// number, or badPair. Of its 128 KiB only those of legal pairs are ever read.
var pairs = sync.OnceValue(func() *[1 << 16]uint16 {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

	t := new([1 << 16]uint16)
	for i := range t {
		t[i] = badPair
	}

	for a, x := range []byte(alphabet) {
		for b, y := range []byte(alphabet) {
			t[uint16(x)|uint16(y)<<8] = uint16(a<<6 | b)
		}
	}

	return t
})

const badPair = 1 << 15

// decodeFast decodes base64 with padding, eight characters at a time. It knows
// no words for what it does not take, and takes nothing that the rack does not.
// dst must have eight bytes more than the data.
func decodeFast(dst, text []byte) ([]byte, bool) {
	t := pairs()
	in, out := 0, 0

	if len(text)%4 != 0 || len(dst) < len(text)/4*3+8 {
		return nil, false
	}

	// The last characters may be padding.
	for len(text)-in >= 12 {
		x := binary.LittleEndian.Uint64(text[in:])
		a, b, c, d := t[uint16(x)], t[uint16(x>>16)], t[uint16(x>>32)], t[uint16(x>>48)]

		if (a|b|c|d)&badPair != 0 {
			return nil, false
		}

		// Six of the eight bytes count, the others are written over.
		binary.BigEndian.PutUint64(dst[out:], uint64(a)<<52|uint64(b)<<40|uint64(c)<<28|uint64(d)<<16)

		in += 8
		out += 6
	}

	rest := text[in:]
	if bytes.ContainsAny(rest, "\r\n") { // which Go's decoder passes over
		return nil, false
	}

	n, err := base64.StdEncoding.Strict().Decode(dst[out:], rest)

	return dst[:out+n], err == nil
}
