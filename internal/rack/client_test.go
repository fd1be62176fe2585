package rack_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestACallSaysWhoAndWhichVersion(t *testing.T) {
	t.Parallel()

	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer oxide-token-secret" || r.Header.Get("User-Agent") != "test/1" ||
			!strings.HasPrefix(r.Header.Get("Api-Version"), "2026060800") {
			t.Errorf("headers %v", r.Header)
		}

		answer(w, 200, `{"status":"ok"}`)
	})

	if err := c.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// pages serves a list of five disks, two a page, and fails the page that
// broken names, once.
func pages(t *testing.T, broken string) http.HandlerFunc {
	t.Helper()

	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("sort_by") != "id_ascending" || q.Get("project") != "p" {
			t.Errorf("query %v", q)
		}

		token := q.Get("page_token")
		if broken != "" && token == broken {
			answer(w, 500, `{"request_id":"r","message":"Internal Server Error","error_code":"Internal"}`)

			return
		}

		next := map[string]string{"": "b", "b": "c", "c": ""}[token]
		count := map[string]int{"": 2, "b": 2, "c": 1}[token]
		disk := `{"id":"d","name":"n","description":"","size":1073741824,"block_size":512,"state":{"state":"detached"},` +
			`"device_path":"/mnt/n","disk_type":"distributed","project_id":"p","read_only":false,` +
			`"time_created":"2026-01-01T00:00:00Z","time_modified":"2026-01-01T00:00:00Z"}`
		items := strings.TrimSuffix(strings.Repeat(disk+",", count), ",")
		answer(w, 200, fmt.Sprintf(`{"items":[%s],"next_page":%q}`, items, next))
	}
}

func TestAListIsCompleteOrAnError(t *testing.T) {
	t.Parallel()

	disks, err := newClient(t, pages(t, "")).ListDisks(t.Context(), "p")
	if err != nil || len(disks) != 5 {
		t.Errorf("%d disks, %v", len(disks), err)
	}

	disks, err = newClient(t, pages(t, "c")).ListDisks(t.Context(), "p")
	if err == nil || disks != nil {
		t.Errorf("a broken last page gave %d disks and no error", len(disks))
	}
}

func TestAListThatRepeatsAPageIsAnError(t *testing.T) {
	t.Parallel()

	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"items":[],"next_page":"same"}`) })

	if _, err := c.ListProjects(t.Context()); rack.ClassOf(err) != rack.ClassInternal {
		t.Errorf("got %v", err)
	}
}

func TestBulkWritesCarryTheirBytesWhateverFailsBetween(t *testing.T) {
	t.Parallel()

	var (
		mu   sync.Mutex
		seen = map[uint64][]byte{}
		n    int
	)

	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}

		if r.ContentLength != int64(len(body)) {
			t.Errorf("content length %d of %d", r.ContentLength, len(body))
		}

		var b struct {
			Offset uint64 `json:"offset"`
			Data   string `json:"base64_encoded_data"`
		}

		if err := json.Unmarshal(body, &b); err != nil {
			t.Errorf("body: %v", err)
		}

		data, err := base64.StdEncoding.DecodeString(b.Data)
		if err != nil {
			t.Error(err)
		}

		mu.Lock()
		defer mu.Unlock()

		if n++; n%3 == 0 {
			answer(w, 500, `{"request_id":"r","message":"Internal Server Error","error_code":"Internal"}`)

			return
		}

		seen[b.Offset] = data
		w.WriteHeader(http.StatusNoContent)
	})

	var wg sync.WaitGroup

	for i := range 8 {
		wg.Go(func() {
			for j := range 5 {
				offset := uint64(i*5+j) * 4096
				chunk := bytes.Repeat([]byte{byte(i*5 + j)}, 4096)

				for c.BulkWrite(t.Context(), "disk", offset, chunk) != nil {
				}
			}
		})
	}

	wg.Wait()

	for i := range 40 {
		if want := bytes.Repeat([]byte{byte(i)}, 4096); !bytes.Equal(seen[uint64(i)*4096], want) {
			t.Errorf("chunk %d is not what was written", i)
		}
	}

	if err := c.BulkWrite(t.Context(), "disk", 0, make([]byte, rack.MaxChunk+1)); rack.ClassOf(err) != rack.ClassInvalid {
		t.Errorf("an oversized chunk: %v", err)
	}
}

func TestAnIDIsSentWithoutItsProject(t *testing.T) {
	t.Parallel()

	var query []string

	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		query = append(query, r.URL.RawQuery)

		answer(w, 404, `{"request_id":"r","message":"not found","error_code":"ObjectNotFound"}`)
	})

	_, _ = c.ViewAntiAffinityGroup(t.Context(), "p", "spread")
	_, _ = c.ViewAntiAffinityGroup(t.Context(), "p", "4c1e0b52-6a53-4a1b-8a0e-1c9f3c2d7a11")

	if len(query) != 2 || query[0] != "project=p" || query[1] != "" {
		t.Errorf("queries %q", query)
	}
}
