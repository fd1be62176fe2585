package talosimage

import "encoding/binary"

// pageSize is the unit in which the content is compressible or not.
const pageSize = 4096

// phrase fills the pages that compress well.
const phrase = "this page stands for the text and tables of a Talos system disk "

// mix is the finaliser of SplitMix64: a good 64-bit hash of a counter.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb

	return x ^ x>>31
}

// fill writes the content of the image from offset on into p. Seven pages in
// ten are incompressible, as in a real image; no page is all zeros.
func fill(p []byte, seed, offset uint64) {
	for len(p) > 0 {
		page := offset / pageSize
		n := min(pageSize-int(offset%pageSize), len(p))

		if mix(seed^page<<20)%10 < 7 {
			fillRandom(p[:n], seed, offset)
		} else {
			fillText(p[:n], seed, offset)
		}

		p = p[n:]
		offset += uint64(n)
	}
}

func fillRandom(p []byte, seed, offset uint64) {
	base := mix(seed)

	if skip := offset % 8; skip != 0 {
		var word [8]byte

		binary.LittleEndian.PutUint64(word[:], mix(base+offset/8))
		n := copy(p, word[skip:])
		p, offset = p[n:], offset+uint64(n)
	}

	for ; len(p) >= 8; p, offset = p[8:], offset+8 {
		binary.LittleEndian.PutUint64(p, mix(base+offset/8))
	}

	if len(p) > 0 {
		var word [8]byte

		binary.LittleEndian.PutUint64(word[:], mix(base+offset/8))
		copy(p, word[:])
	}
}

// fillText repeats the phrase, whose first bytes are the page's number.
func fillText(p []byte, seed, offset uint64) {
	line := []byte(phrase)
	binary.LittleEndian.PutUint64(line, mix(seed+offset/pageSize)|1)

	for len(p) > 0 {
		n := copy(p, line[offset%uint64(len(line)):])
		p, offset = p[n:], offset+uint64(n)
	}
}
