package rack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// Invariant: in whatever pieces a body is read, it is the JSON text of the
// write and as long as it says.
func TestABulkWriteIsEncodedWhileItIsSent(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		chunk := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "chunk")
		offset := rapid.Uint64().Draw(t, "offset")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 900), 1, 8).Draw(t, "reads")

		w := newBulkWrite(offset, chunk)
		b := w.body()

		var text []byte

		for i := 0; ; i++ {
			size := sizes[i%len(sizes)]
			beyond := make([]byte, size+64)

			n, err := b.Read(beyond[:size])
			text = append(text, beyond[:n]...)

			if !bytes.Equal(beyond[size:], make([]byte, 64)) {
				t.Fatalf("a read of %d bytes wrote more", size)
			}

			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				t.Fatal(err)
			}
		}

		var got struct {
			Offset uint64 `json:"offset"`
			Data   []byte `json:"base64_encoded_data"`
		}

		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v: %.100s", err, text)
		}

		if got.Offset != offset || string(got.Data) != string(chunk) || int64(len(text)) != w.length() {
			t.Fatalf("%d bytes at %d instead of %d at %d", len(got.Data), got.Offset, len(chunk), offset)
		}
	})
}

// Invariant: writes make no buffers of their own, with TLS or without: an image
// has hundreds of them, and the garbage would count as the daemon's memory.
func TestWritesMakeNoBuffers(t *testing.T) {
	t.Parallel()

	for name, start := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "tls": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)

				w.WriteHeader(http.StatusNoContent)
			}))
			defer s.Close()

			transport, _ := s.Client().Transport.(*http.Transport)

			c, err := New(Config{Host: s.URL, Token: "token", Transport: transport})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			var conn net.Conn

			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(info httptrace.GotConnInfo) { conn = info.Conn },
			})

			if err := c.BulkWrite(ctx, "disk", 0, make([]byte, MaxChunk)); err != nil {
				t.Fatal(err)
			}

			poured, ok := conn.(*pourConn)
			if !ok || len(poured.buffer) != pourSize {
				t.Errorf("the body went out by a %T", conn)
			}
		})
	}
}

// Invariant: a connection sends all bodies by way of the same buffer.
func TestAConnectionKeepsItsBuffer(t *testing.T) {
	t.Parallel()

	c := &pourConn{Conn: sink{}}
	body := bytes.NewReader(make([]byte, 3*pourSize+1))

	for range 2 {
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}

		before := c.buffer

		if n, err := c.ReadFrom(body); n != 3*pourSize+1 || err != nil {
			t.Fatal(n, err)
		}

		if before != nil && &before[0] != &c.buffer[0] {
			t.Error("the second body made a buffer")
		}
	}
}

// sink takes everything.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error) { return len(p), nil }

// Invariant: once a write is over nobody reads its chunk, which holds other
// bytes by then.
func TestABodyThatIsReadTooLateIsCut(t *testing.T) {
	t.Parallel()

	w := newBulkWrite(0, make([]byte, 4096))
	b := w.body()

	if _, err := b.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}

	w.end()

	if n, err := b.Read(make([]byte, 100)); n != 0 || !errors.Is(err, errBulkWriteOver) {
		t.Fatal(n, err)
	}
}

// Invariant: one writer needs one connection, over TLS too, and its bodies
// tell their length.
func TestWritesKeepTheirConnection(t *testing.T) {
	t.Parallel()

	var dials atomic.Int32

	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != r.ContentLength || r.ProtoMajor != 1 {
			t.Errorf("%d of %d bytes over %s: %v", n, r.ContentLength, r.Proto, err)
		}

		w.WriteHeader(http.StatusNoContent)
	}))
	srv.EnableHTTP2 = true
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			dials.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)

	transport, ok := srv.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}

	c, err := New(Config{Host: srv.URL, Token: "token", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)

	for i := range 20 {
		if err := c.BulkWrite(context.Background(), "disk", uint64(i)*MaxChunk, make([]byte, MaxChunk)); err != nil {
			t.Fatal(err)
		}
	}

	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
