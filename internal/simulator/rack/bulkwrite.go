package rack

import (
	"bytes"
	"math"
)

// bulkWriteBody is a write as sent: data is still base64.
type bulkWriteBody struct {
	offset uint64
	data   []byte
}

// parseBulkWrite reads the body of a bulk write. This is the one path where
// reading JSON in general would cost more than the work itself: the usual form,
// two keys in any order and a string without escapes, is scanned by hand, and
// anything else goes the general way, which also finds the words for errors.
func parseBulkWrite(body []byte) (bulkWriteBody, error) {
	if w, ok := scanBulkWrite(body); ok {
		return w, nil
	}

	o := parseBody(body)
	w := bulkWriteBody{
		offset: o.number("offset", math.MaxUint64),
		data:   []byte(o.text("base64_encoded_data")),
	}

	if o.err == nil && bytes.ContainsAny(w.data, "\r\n") {
		return w, invalidRequest("error while decoding base64 data: invalid symbol") // which Go's decoder passes over
	}

	return w, o.err
}

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

// str takes a string without escapes.
func (s *scanner) str() []byte {
	s.expect('"')

	end := bytes.IndexByte(s.b, '"')
	if s.bad || end < 0 {
		s.bad = true

		return nil
	}

	v := s.b[:end]
	s.b = s.b[end+1:]

	// The decoder of base64 passes over line ends, which JSON may not hold raw.
	if bytes.IndexByte(v, '\\') >= 0 || bytes.IndexByte(v, '\n') >= 0 || bytes.IndexByte(v, '\r') >= 0 {
		s.bad = true
	}

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

func scanBulkWrite(body []byte) (bulkWriteBody, bool) {
	var (
		w               bulkWriteBody
		offset, hasData bool
	)

	s := &scanner{b: body}
	s.expect('{')

	for !s.bad {
		key := s.str()
		s.expect(':')

		switch {
		case string(key) == "offset" && !offset:
			w.offset, offset = s.uint(), true
		case string(key) == "base64_encoded_data" && !hasData:
			w.data, hasData = s.str(), true
		default:
			return w, false
		}

		if !s.next(',') {
			break
		}
	}

	s.expect('}')
	s.space()

	return w, !s.bad && len(s.b) == 0 && offset && hasData
}
