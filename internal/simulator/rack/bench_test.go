package rack

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// One write of 512 KiB through the whole handler, without the network.
func BenchmarkBulkWrite(b *testing.B) {
	s, err := New(Config{Latencies: &Latencies{}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()

	do := func(path, body string) {
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+DefaultToken)

		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)

		if w.Code > 299 {
			b.Fatal(w.Code, w.Body)
		}
	}

	do("/v1/disks?project=demo", `{"name":"d","description":"","size":1073741824,"disk_backend":{"type":"distributed","disk_source":{"type":"importing_blocks","block_size":512}}}`)
	do("/v1/disks/d/bulk-write-start?project=demo", "")

	for name, data := range map[string][]byte{"data": noise(maxBulkWrite), "zeros": make([]byte, maxBulkWrite)} {
		body := fmt.Sprintf(`{"offset":0,"base64_encoded_data":%q}`, base64.StdEncoding.EncodeToString(data))

		b.Run(name, func(b *testing.B) {
			b.SetBytes(maxBulkWrite)

			for b.Loop() {
				do("/v1/disks/d/bulk-write?project=demo", body)
			}
		})
	}
}

// A rack with many objects stays small, and its lists stay quick.
func TestManyObjects(t *testing.T) {
	s, err := New(Config{Latencies: &Latencies{}})
	must(0, err)(t)

	defer s.Close()

	var before, after runtime.MemStats

	runtime.GC()
	runtime.ReadMemStats(&before)

	s.mu.Lock()

	p, _ := s.projects.named("", "demo")
	c := &call{s: s, token: s.tokens[DefaultToken]}

	for n := range 20_000 {
		d := must(s.newDisk(c, p, diskSpec{name: fmt.Sprintf("d%d", n), size: gib, blockSize: 512, source: "blank"}))(t)
		s.readyDisk(d)
	}

	s.mu.Unlock()
	runtime.GC()
	runtime.ReadMemStats(&after)

	if used := after.HeapAlloc - before.HeapAlloc; used > 100<<20 {
		t.Errorf("20,000 disks take %d MiB", used>>20)
	}

	began := time.Now()
	pg := page{limit: 100, sort: byIDAscending}

	for range 10 {
		must(listIn(pg, s.disks, p.id, viewDisk))(t)
	}

	t.Logf("a page of 20,000: %s", time.Since(began)/10)
}
