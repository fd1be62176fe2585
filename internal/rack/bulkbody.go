package rack

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	// It encodes ten times as fast as the standard library, for which base64 is a
	// tenth of an upload.
	"github.com/segmentio/asm/base64"
)

// bulkWrite is one chunk on its way to the rack. It is encoded while it is
// sent: the encoded body would be a second buffer, a third larger than the
// chunk, for each writer.
type bulkWrite struct {
	head  []byte
	chunk []byte

	mu   sync.Mutex
	over bool
}

const bulkTail = `"}`

var errBulkWriteOver = errors.New("the write is over")

func newBulkWrite(offset uint64, chunk []byte) *bulkWrite {
	head := append(make([]byte, 0, 64), `{"offset":`...)
	head = strconv.AppendUint(head, offset, 10)
	head = append(head, `,"base64_encoded_data":"`...)

	return &bulkWrite{head: head, chunk: chunk}
}

func (w *bulkWrite) length() int64 {
	return int64(len(w.head) + base64.StdEncoding.EncodedLen(len(w.chunk)) + len(bulkTail))
}

// end returns when nobody reads the chunk any more. After a failure Go's
// transport may go on sending; what it then gets is an error, so that a late
// body is cut short and never holds the bytes of another chunk.
func (w *bulkWrite) end() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.over = true
}

func (w *bulkWrite) body() *bulkBody {
	return &bulkBody{write: w, pending: w.head, rest: w.chunk, tail: bulkTail}
}

// bulkBody is the JSON text of a bulkWrite.
type bulkBody struct {
	write   *bulkWrite
	pending []byte // is sent before anything of rest
	rest    []byte // not yet encoded
	tail    string // is sent after everything of rest
	group   [4]byte
}

// Read implements io.Reader.
func (b *bulkBody) Read(p []byte) (int, error) {
	b.write.mu.Lock()
	defer b.write.mu.Unlock()

	if b.write.over {
		return 0, errBulkWriteOver
	}

	n := 0

	for n < len(p) {
		switch {
		case len(b.pending) > 0:
			m := copy(p[n:], b.pending)
			b.pending = b.pending[m:]
			n += m
		case len(b.rest) > 0 && len(p)-n < len(b.group):
			raw := min(3, len(b.rest))
			base64.StdEncoding.Encode(b.group[:], b.rest[:raw])
			b.pending, b.rest = b.group[:], b.rest[raw:]
		case len(b.rest) > 0:
			raw := min((len(p)-n)/4*3, len(b.rest))
			base64.StdEncoding.Encode(p[n:], b.rest[:raw])
			b.rest = b.rest[raw:]
			n += base64.StdEncoding.EncodedLen(raw)
		case b.tail != "":
			m := copy(p[n:], b.tail)
			b.tail = b.tail[m:]
			n += m
		default:
			return n, io.EOF
		}
	}

	return n, nil
}

// Close implements io.Closer.
func (b *bulkBody) Close() error { return nil }

// bulkTransport tells the length of bulk writes, which the SDK has no place
// for. It also lets the transport begin anew when a kept connection turns out
// to be closed before anything was sent.
type bulkTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t bulkTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if body, ok := req.Body.(*bulkBody); ok {
		req = req.WithContext(req.Context()) // a copy: the request is not ours to change
		req.ContentLength = body.write.length()
		req.GetBody = func() (io.ReadCloser, error) { return body.write.body(), nil }
	}

	return t.RoundTripper.RoundTrip(req)
}
