package rack

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math"
	"sync"
)

// bulkWriteBody is a write as sent; badText is set when data is no base64.
type bulkWriteBody struct {
	offset  uint64
	data    []byte
	badText error
}

// parseBulkWrite reads the body of a bulk write. This is the one path where
// reading JSON in general would cost more than the work itself: the usual form,
// two keys in any order and a string of base64 without escapes, is scanned by
// hand and decoded into the given buffer. Anything else goes the general way,
// which also finds the words for errors.
func parseBulkWrite(body, buffer []byte) (bulkWriteBody, error) {
	if offset, text, ok := scanBulkWrite(body); ok {
		if data, ok := decodeFast(buffer, text); ok {
			return bulkWriteBody{offset: offset, data: data}, nil
		}
	}

	o := parseBody(body)
	w := bulkWriteBody{offset: o.number("offset", math.MaxUint64)}
	text := []byte(o.text("base64_encoded_data"))

	if o.err != nil {
		return w, o.err
	}

	if bytes.ContainsAny(text, "\r\n") { // which Go's decoder passes over
		w.badText = errLineEnd
	} else {
		w.data = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
		n, err := base64.StdEncoding.Strict().Decode(w.data, text)
		w.data, w.badText = w.data[:n], err
	}

	return w, nil
}

var errLineEnd = errors.New("invalid symbol: a line end")

// bulkBuffers are what a bulk write is read and decoded into. Fresh ones for
// each write would be cleared and collected for nothing.
type bulkBuffers struct {
	body [bulkBuffer]byte
	data [maxBulkWrite + 16]byte
}

// bulkBuffer holds the body of a write of the greatest size, with room for
// spaces.
const bulkBuffer = (maxBulkWrite+2)/3*4 + 1024

var bulkPool = sync.Pool{New: func() any { return new(bulkBuffers) }}

type scanner struct {
	b   []byte
	bad bool
}

func (s *scanner) space() {
	for len(s.b) > 0 && (s.b[0] == ' ' || s.b[0] == '\n' || s.b[0] == '\t' || s.b[0] == '\r') {
		s.b = s.b[1:]
	}
}

// next takes one character, after any space, if it is the given one.
func (s *scanner) next(c byte) bool {
	s.space()

	if len(s.b) == 0 || s.b[0] != c {
		return false
	}

	s.b = s.b[1:]

	return true
}

func (s *scanner) expect(c byte) {
	if !s.next(c) {
		s.bad = true
	}
}

// str takes a string. One with escapes or control characters is taken too, and
// is none of the two keys and no base64.
func (s *scanner) str() []byte {
	s.expect('"')

	end := bytes.IndexByte(s.b, '"')
	if s.bad || end < 0 {
		s.bad = true

		return nil
	}

	v := s.b[:end]
	s.b = s.b[end+1:]

	return v
}

func (s *scanner) uint() uint64 {
	s.space()

	var (
		n      uint64
		digits int
	)

	for len(s.b) > 0 && s.b[0] >= '0' && s.b[0] <= '9' {
		d := uint64(s.b[0] - '0')
		if n > (math.MaxUint64-d)/10 || digits == 1 && n == 0 {
			s.bad = true

			return 0
		}

		n = n*10 + d
		digits++
		s.b = s.b[1:]
	}

	s.bad = s.bad || digits == 0

	return n
}

func scanBulkWrite(body []byte) (at uint64, text []byte, ok bool) {
	var offset, hasData bool

	s := &scanner{b: body}
	s.expect('{')

	for !s.bad {
		key := s.str()
		s.expect(':')

		switch {
		case string(key) == "offset" && !offset:
			at, offset = s.uint(), true
		case string(key) == "base64_encoded_data" && !hasData:
			text, hasData = s.str(), true
		default:
			return 0, nil, false
		}

		if !s.next(',') {
			break
		}
	}

	s.expect('}')
	s.space()

	return at, text, !s.bad && len(s.b) == 0 && offset && hasData
}
