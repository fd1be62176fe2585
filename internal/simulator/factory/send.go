package factory

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// sendBuffer is the piece in which answers are sent and paced.
const sendBuffer = 64 << 10

var errCut = errors.New("cut by a fault")

// harmed is the content as the faults leave it.
type harmed struct {
	io.ReaderAt

	ctx     context.Context // io.ReaderAt has no other place for it
	corrupt int64           // offset, or -1
	end     int64           // where it ends early, or -1
	stall   bool            // whether it stands still there
}

func (s *Server) harmed(r *http.Request, c content) *harmed {
	h := &harmed{ReaderAt: c.ReaderAt, ctx: r.Context(), corrupt: -1, end: -1}

	if f, ok := s.faults.take(r.URL.Path, KindCorrupt); ok {
		h.corrupt = f.Bytes
	}

	if f, ok := s.faults.take(r.URL.Path, KindTruncate); ok {
		h.end = f.Bytes
	}

	if f, ok := s.faults.take(r.URL.Path, KindStall); ok {
		h.end, h.stall = f.Bytes, true
	}

	return h
}

// ReadAt implements io.ReaderAt.
func (h *harmed) ReadAt(p []byte, off int64) (int, error) {
	if h.end >= 0 && off >= h.end {
		if h.stall {
			<-h.ctx.Done()
		}

		return 0, errCut
	}

	if h.end >= 0 && off+int64(len(p)) > h.end {
		p = p[:h.end-off]
	}

	n, err := h.ReaderAt.ReadAt(p, off)
	if at := h.corrupt - off; h.corrupt >= 0 && at >= 0 && at < int64(n) {
		p[at] ^= 0x40
	}

	return n, err
}

// send writes the whole content at the configured rate. When it can not, it
// breaks the connection, so that the client sees a truncated answer.
func (s *Server) send(w http.ResponseWriter, r *http.Request, c content) {
	paced := s.paced(w, r)
	body := io.NewSectionReader(s.harmed(r, c), 0, c.size)

	_, err := io.CopyBuffer(struct{ io.Writer }{paced}, body, make([]byte, sendBuffer))
	paced.end(err)
}

// sendRange does the same for a part of the content, as the client asks.
func (s *Server) sendRange(w http.ResponseWriter, r *http.Request, c content) {
	paced := s.paced(w, r)
	body := &failingSeeker{SectionReader: io.NewSectionReader(s.harmed(r, c), 0, c.size)}

	http.ServeContent(paced, r, "", time.Time{}, body)
	paced.end(body.err)
}

// failingSeeker remembers that reading failed: http.ServeContent keeps silent.
type failingSeeker struct {
	*io.SectionReader

	err error
}

func (f *failingSeeker) Read(p []byte) (int, error) {
	n, err := f.SectionReader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}

	return n, err
}

// pacedWriter writes at the configured rate. It holds the last byte back until
// end, which leaves it to the server to send after the handler has returned: so
// a client that has read everything finds its download counted.
type pacedWriter struct {
	http.ResponseWriter

	pace *pace
	held []byte
	err  error
}

func (s *Server) paced(w http.ResponseWriter, r *http.Request) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, pace: s.newPace(r.Context())}
}

func (p *pacedWriter) Write(b []byte) (int, error) {
	if len(b) == 0 || p.err != nil {
		return 0, p.err
	}

	if len(p.held) > 0 {
		_, p.err = p.ResponseWriter.Write(p.held)
	}

	last := len(b) - 1
	p.held = []byte{b[last]}

	if p.err == nil {
		_, p.err = p.ResponseWriter.Write(b[:last])
	}

	// What is sent must not wait for what a fault holds back.
	if p.err == nil {
		p.err = http.NewResponseController(p.ResponseWriter).Flush()
	}

	if p.err == nil {
		p.err = p.pace.wait(len(b))
	}

	return len(b), p.err
}

// end sends the rest, or breaks the connection when something went wrong.
func (p *pacedWriter) end(err error) {
	if err = errors.Join(err, p.err); err == nil && len(p.held) > 0 {
		_, err = p.ResponseWriter.Write(p.held)
	}

	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// pace holds one answer to a rate.
type pace struct {
	ctx   context.Context // lives as long as the request
	rate  int64
	start time.Time
	sent  int64
}

func (s *Server) newPace(ctx context.Context) *pace {
	return &pace{ctx: ctx, rate: s.config.Rate, start: time.Now()}
}

// wait blocks until n more bytes may have been sent.
func (p *pace) wait(n int) error {
	if p.sent += int64(n); p.rate <= 0 {
		return p.ctx.Err()
	}

	due := p.start.Add(time.Duration(float64(p.sent) / float64(p.rate) * float64(time.Second)))

	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// signer makes the addresses of the object storage, which hold for a while.
type signer struct{ key []byte }

// signatureLife is how long an address holds.
const signatureLife = 5 * time.Minute

func newSigner() (signer, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return signer{}, fmt.Errorf("making a key: %w", err)
	}

	return signer{key: key}, nil
}

func (s signer) sum(path, expires string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(path + "\n" + expires))

	return hex.EncodeToString(mac.Sum(nil))
}

func (s signer) sign(path string) string {
	expires := strconv.FormatInt(time.Now().Add(signatureLife).Unix(), 10)

	return path + "?" + url.Values{"expires": {expires}, "signature": {s.sum(path, expires)}}.Encode()
}

func (s signer) valid(u *url.URL) bool {
	expires := u.Query().Get("expires")

	at, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || time.Now().Unix() > at {
		return false
	}

	return bytes.Equal([]byte(s.sum(u.Path, expires)), []byte(u.Query().Get("signature")))
}
