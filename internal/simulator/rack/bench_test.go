package rack

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack/conform"
)

// usedCPU is what the process has used of all processors.
func usedCPU(t testing.TB) time.Duration {
	t.Helper()

	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// writer is where the child process of BenchmarkBulkWriteServed finds what to
// write to.
const writer = "RACK_BENCHMARK_WRITES"

// runWriter is what the test's binary does as the client of a benchmark, so
// that the processor time of the rack's process is the rack's alone.
func runWriter() error {
	var (
		url string
		n   int
	)

	if _, err := fmt.Sscan(os.Getenv(writer), &url, &n); err != nil {
		return err
	}

	body := []byte(fmt.Sprintf(`{"offset":0,"base64_encoded_data":%q}`, base64.StdEncoding.EncodeToString(noise(maxBulkWrite))))

	var (
		wg   sync.WaitGroup
		errs = make([]error, 8)
	)

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(errs)}}

	for w := range errs {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += len(errs) {
				errs[w] = post(context.Background(), client, url, body)
			}
		})
	}

	wg.Wait()
	client.CloseIdleConnections()

	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}

func post(ctx context.Context, client *http.Client, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Authorization", "Bearer "+DefaultToken)
	req.Header.Set("Content-Type", "application/json")

	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode > 299 {
		return fmt.Errorf("%s: %s, %w", resp.Status, answer, err)
	}

	return nil
}

const importingDisk = `{"name":"d","description":"","size":1073741824,"disk_backend":{"type":"distributed","disk_source":{"type":"importing_blocks","block_size":512}}}`

// 512 KiB written over loopback by eight writers of another process: what the
// rack's process pays for one, with all that the kernel does for it.
func BenchmarkBulkWriteServed(b *testing.B) {
	b.Setenv(conform.DocumentVariable, "")

	for _, mode := range []ContentMode{ContentNone, ContentHashed, ContentKept} {
		b.Run(string(mode), func(b *testing.B) {
			s, err := New(Config{Latencies: &Latencies{}, Content: mode})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()

			srv := httptest.NewServer(s)
			defer srv.Close()

			disks := srv.URL + "/v1/disks"
			for _, call := range [][2]string{{"?project=demo", importingDisk}, {"/d/bulk-write-start?project=demo", ""}} {
				if err := post(b.Context(), srv.Client(), disks+call[0], []byte(call[1])); err != nil {
					b.Fatal(err)
				}
			}

			child := exec.CommandContext(b.Context(), os.Args[0])
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%s/d/bulk-write?project=demo %d", writer, disks, b.N))

			b.SetBytes(maxBulkWrite)
			b.ResetTimer()

			before := usedCPU(b)

			if out, err := child.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}

			b.ReportMetric(float64(usedCPU(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		})
	}
}

// One write through the whole handler, without the network.
func BenchmarkBulkWrite(b *testing.B) {
	b.Setenv(conform.DocumentVariable, "")

	for _, mode := range []ContentMode{ContentNone, ContentHashed, ContentKept} {
		benchmarkWrites(b, mode)
	}
}

func benchmarkWrites(b *testing.B, mode ContentMode) {
	b.Helper()

	s, err := New(Config{Latencies: &Latencies{}, Content: mode})
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

	do("/v1/disks?project=demo", importingDisk)
	do("/v1/disks/d/bulk-write-start?project=demo", "")

	for name, data := range map[string][]byte{"data": noise(maxBulkWrite), "zeros": make([]byte, maxBulkWrite)} {
		body := fmt.Sprintf(`{"offset":0,"base64_encoded_data":%q}`, base64.StdEncoding.EncodeToString(data))

		b.Run(string(mode)+"/"+name, func(b *testing.B) {
			b.SetBytes(maxBulkWrite)

			before := usedCPU(b)

			for b.Loop() {
				do("/v1/disks/d/bulk-write?project=demo", body)
			}

			b.ReportMetric(float64(usedCPU(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		})
	}
}

// A page of a hundred out of 20,000 disks, as it is answered.
func BenchmarkPage(b *testing.B) {
	b.Setenv(conform.DocumentVariable, "")

	s, err := New(Config{Latencies: &Latencies{}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()

	fill(b, s, 0, 20_000)

	for _, sort := range []sortMode{byNameAscending, byNameDescending, byIDAscending} {
		b.Run(string(sort), func(b *testing.B) {
			before := usedCPU(b)

			for b.Loop() {
				req := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/disks?project=demo&limit=100&sort_by="+string(sort), http.NoBody)
				req.Header.Set("Authorization", "Bearer "+DefaultToken)

				w := httptest.NewRecorder()
				if s.ServeHTTP(w, req); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}

			b.ReportMetric(float64(usedCPU(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		})
	}
}

// fill makes instances and disks in project demo, a boot disk for each
// instance among them.
func fill(t testing.TB, s *Server, instances, disks int) {
	t.Helper()

	s.mu.Lock()
	defer s.mu.Unlock()

	p, _ := s.projects.named("", "demo")
	c := &call{s: s, token: s.tokens[DefaultToken], user: s.users["provider"]}

	for n := range disks {
		d, err := s.newDisk(c, p, diskSpec{
			name: "disk-of-a-machine-" + strconv.Itoa(n), description: strings.Repeat("x", 300), size: gib, blockSize: 512, source: "blank",
		})
		if err != nil {
			t.Fatal(err)
		}

		s.readyDisk(d)
	}

	for n := range instances {
		name := strconv.Itoa(n)
		body := `{"name":"machine-` + name + `","description":"` + strings.Repeat("x", 300) + `","hostname":"machine-` + name + `",
			"ncpus":1,"memory":1073741824,"start":false,"ssh_public_keys":[],"user_data":"` + base64.StdEncoding.EncodeToString(noise(4096)) + `",
			"network_interfaces":{"type":"none"},"boot_disk":{"type":"attach","name":"disk-of-a-machine-` + name + `"}}`
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/instances?project=demo", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+DefaultToken)

		w := httptest.NewRecorder()

		s.mu.Unlock()
		s.ServeHTTP(w, req)
		s.mu.Lock()

		if w.Code != http.StatusCreated {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}

// Invariant: 5,000 instances, each with 4 KiB of user data, and 20,000 disks
// take less than 500 MiB.
func TestManyObjectsStaySmall(t *testing.T) {
	t.Setenv(conform.DocumentVariable, "")

	var before, after runtime.MemStats

	runtime.GC()
	runtime.ReadMemStats(&before)

	s, err := New(Config{Latencies: &Latencies{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	fill(t, s, 5_000, 20_000)
	runtime.GC()
	runtime.ReadMemStats(&after)

	used := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) >> 20
	t.Logf("5,000 instances and 20,000 disks take %d MiB", used)

	if used >= 500 {
		t.Errorf("5,000 instances and 20,000 disks take %d MiB", used)
	}
}
