package rack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxidecomputer/oxide.go/oxide"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(writer) != "" {
		if err := runWriter(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		return
	}

	goleak.VerifyTestMain(m)
}

// rig is a rack under test, and a client of its.
type rig struct {
	*Server

	t      *testing.T
	url    string
	http   *http.Client
	client *oxide.Client
	end    func()
}

// newRig starts a rack a hundred times as fast as a real one.
func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()

	cfg := Config{TimeScale: 0.01}
	for _, f := range change {
		f(&cfg)
	}

	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	r := newRigOf(t, s)
	t.Cleanup(r.end)

	return r
}

// newRigOf serves a rack; the caller ends it.
func newRigOf(t *testing.T, s *Server) *rig {
	t.Helper()

	tables := documented(t)
	s.mu.Lock()
	s.moved = func(kind, from, to string) {
		if !slices.Contains(tables[kind], [2]string{from, to}) {
			t.Errorf("a step of %s from %s to %s is not in the package comment", kind, from, to)
		}
	}
	s.mu.Unlock()

	srv := httptest.NewServer(s)
	tr := &http.Transport{}
	r := &rig{Server: s, t: t, url: srv.URL, http: &http.Client{Transport: tr, Timeout: 30 * time.Second}}
	r.end = func() {
		tr.CloseIdleConnections()
		s.Close()
		srv.Close()

		for _, v := range s.Violations() {
			t.Errorf("%s of %s %s (%d) does not fit the API document: %s", v.Side, v.Method, v.Path, v.Status, v.Problem)
		}
	}
	r.client = r.as(DefaultToken)

	return r
}

// as is a client with another token.
func (r *rig) as(token string) *oxide.Client {
	r.t.Helper()

	c, err := oxide.NewClient(oxide.WithHost(r.url), oxide.WithToken(token), oxide.WithHTTPClient(r.http))
	if err != nil {
		r.t.Fatal(err)
	}

	return c
}

// raw makes a call that no well-behaved client makes: when the rack refuses it,
// it need not fit the API document.
func (r *rig) raw(method, path, body string, header ...string) (int, errorBody, http.Header) {
	r.t.Helper()

	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}

	req.Header.Set("Authorization", "Bearer "+DefaultToken)
	req.Header.Set("Api-Version", APIVersion)
	req.Header.Set("Content-Type", "application/json")

	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}

	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}

	defer resp.Body.Close()

	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}

	var e errorBody
	if resp.StatusCode >= 400 {
		if err := json.Unmarshal(raw, &e); err != nil {
			r.t.Fatalf("error body %q: %v", raw, err)
		}
	}

	return resp.StatusCode, e, resp.Header
}

// must is the value of a call that has to succeed.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()

		if err != nil {
			t.Fatal(short(err))
		}

		return v
	}
}

func short(err error) string {
	var h *oxide.HTTPError
	if errors.As(err, &h) && h.ErrorResponse != nil {
		return fmt.Sprintf("%d %s: %s", h.HTTPResponse.StatusCode, h.ErrorResponse.ErrorCode, h.ErrorResponse.Message)
	}

	return err.Error()
}

// wantError checks status, code and a part of the message.
func wantError(t *testing.T, err error, status int, code, part string) {
	t.Helper()

	var h *oxide.HTTPError
	if !errors.As(err, &h) || h.ErrorResponse == nil {
		t.Fatalf("got %v, want an API error %d %s", err, status, code)
	}

	if h.HTTPResponse.StatusCode != status || h.ErrorResponse.ErrorCode != code ||
		!bytes.Contains([]byte(h.ErrorResponse.Message), []byte(part)) {
		t.Fatalf("got %s, want %d %s …%s…", short(err), status, code, part)
	}

	if id := h.HTTPResponse.Header.Get("X-Request-Id"); id == "" || id != h.ErrorResponse.RequestId {
		t.Fatalf("request ID in the header is %q, in the body %q", id, h.ErrorResponse.RequestId)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()

	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never happened: %s", what)
		}
	}
}

const demo = oxide.NameOrId("demo")

func blank(size int64) oxide.DiskBackend {
	return source(size, oxide.DiskSource{Value: &oxide.DiskSourceBlank{BlockSize: 512}})
}

func source(_ int64, src oxide.DiskSource) oxide.DiskBackend {
	return oxide.DiskBackend{Value: &oxide.DiskBackendDistributed{DiskSource: src}}
}

func importing() oxide.DiskBackend {
	return source(0, oxide.DiskSource{Value: &oxide.DiskSourceImportingBlocks{BlockSize: 512}})
}

func ofImage(id string) oxide.DiskBackend {
	return source(0, oxide.DiskSource{Value: &oxide.DiskSourceImage{ImageId: id}})
}

func ofSnapshot(id string) oxide.DiskBackend {
	return source(0, oxide.DiskSource{Value: &oxide.DiskSourceSnapshot{SnapshotId: id}})
}

func (r *rig) createDisk(name string, size int64, backend oxide.DiskBackend) (*oxide.Disk, error) {
	return r.client.DiskCreate(r.t.Context(), oxide.DiskCreateParams{Project: demo, Body: &oxide.DiskCreate{
		Name: oxide.Name(name), Description: "a disk", Size: oxide.ByteCount(size), DiskBackend: backend,
	}})
}

func (r *rig) disk(name string, size int64, backend oxide.DiskBackend) *oxide.Disk {
	r.t.Helper()

	return must(r.createDisk(name, size, backend))(r.t)
}

func (r *rig) diskState(id string) string {
	r.t.Helper()

	d := must(r.client.DiskView(r.t.Context(), oxide.DiskViewParams{Disk: oxide.NameOrId(id)}))(r.t)

	return string(d.State.State())
}

// text is a text of n characters.
func text(n int) string { return strings.Repeat("ä", n) }

func contains(s, part string) bool { return strings.Contains(s, part) }
