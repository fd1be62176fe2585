package factory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// empty is the ID of the schematic without customization.
const empty = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t testing.TB, config factory.Config) *factory.Server {
	t.Helper()

	if config.ImageSize == 0 {
		config.ImageSize = 3 << 20
	}

	s, err := factory.New(config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	return s
}

func call(t testing.TB, method, url, body string, header http.Header) (int, http.Header, string) {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	for k, v := range header {
		req.Header[k] = v
	}

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	data, err := io.ReadAll(resp.Body)
	if err != nil {
		data = append(data, "<broken>"...)
	}

	return resp.StatusCode, resp.Header, string(data)
}

// fetch downloads an image as the daemon does.
func fetch(t testing.TB, image talos.ImageURL) ([]byte, *talos.Stream, error) {
	t.Helper()

	f := talos.NewFactory(talos.FactoryConfig{UserAgent: "test", IdleTimeout: 300 * time.Millisecond})
	defer f.Close()

	stream, err := f.Open(t.Context(), image)
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()

	raw, err := io.ReadAll(stream)

	return raw, stream, err
}

func imageAt(s *factory.Server) talos.ImageURL {
	return talos.ImageURL{Base: s.URL(), Schematic: empty, Talos: "1.13.5", Arch: "amd64"}
}

func TestSchematicIDsAreThoseOfTheRealFactory(t *testing.T) {
	s := start(t, factory.Config{})

	code, _, body := call(t, http.MethodPost, s.URL()+"/schematics", "customization: {}\n", nil)

	var answer struct{ ID, Schematic string }

	if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusCreated || answer.ID != empty || answer.Schematic != "customization: {}\n" {
		t.Fatal(code, body, err)
	}

	// The form of the text does not matter, its content does.
	_, _, a := call(t, http.MethodPost, s.URL()+"/schematics", "customization: {extraKernelArgs: [a=b]}", nil)
	_, _, b := call(t, http.MethodPost, s.URL()+"/schematics", "customization:\n  extraKernelArgs:\n    - a=b\n", nil)

	if a != b || strings.Contains(a, empty) {
		t.Fatal(a, b)
	}

	for _, bad := range []string{"customisation: {}", "customization: {unknown: 1}", "[]", "", "\t"} {
		if code, _, body := call(t, http.MethodPost, s.URL()+"/schematics", bad, nil); code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", bad, code, body)
		}
	}

	if code, _, body := call(t, http.MethodGet, s.URL()+"/schematics/"+empty, "", nil); code != http.StatusOK || body != "customization: {}\n" {
		t.Error(code, body)
	}
}

func TestImagesInAllForms(t *testing.T) {
	s := start(t, factory.Config{})

	id, err := s.Register([]byte("customization: {extraKernelArgs: [quiet]}"))
	if err != nil {
		t.Fatal(err)
	}

	for _, form := range []string{".raw.zst", ".raw.xz"} {
		if form == ".raw.xz" {
			s.Inject(factory.Fault{Kind: factory.KindNotServed, Match: ".raw.zst"})
		}

		raw, stream, err := fetch(t, talos.ImageURL{Base: s.URL(), Schematic: id, Talos: "v1.13.5", Arch: "arm64", SecureBoot: true})
		if err != nil || stream.Name() != "nocloud-arm64-secureboot"+form {
			t.Fatal(form, err)
		}

		d, err := talosimage.Verify(bytes.NewReader(raw), int64(len(raw)), 1)
		if err != nil || d.Schematic != id || d.Talos != "1.13.5" || d.Arch != "arm64" || d.Platform != "nocloud" || !d.SecureBoot || d.KernelArgs[0] != "quiet" {
			t.Fatalf("%s: %+v, %v", form, d, err)
		}
	}

	url := s.URL() + "/image/" + empty + "/1.13.5/nocloud-amd64.raw"

	code, header, body := call(t, http.MethodGet, url, "", http.Header{"Range": {"bytes=5-"}})
	if _, err := talosimage.Read(strings.NewReader(body), int64(len(body))); err != nil || code != http.StatusOK {
		t.Fatal(code, len(body), err)
	}

	if header.Get("Content-Length") != "3145728" || header.Get("ETag") != "" || header.Get("Accept-Ranges") != "" {
		t.Fatal(header)
	}

	code, header, body = call(t, http.MethodHead, url, "", nil)
	if code != http.StatusOK || header.Get("Content-Length") != "3145728" || body != "" || !strings.Contains(header.Get("Content-Disposition"), `"nocloud-amd64.raw"`) {
		t.Fatal(code, header)
	}
}

func TestRefusals(t *testing.T) {
	s := start(t, factory.Config{Versions: []string{"1.13.5"}})
	unknown := strings.Repeat("ab", 32)

	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/image/" + unknown + "/v1.13.5/nocloud-amd64.raw.zst": {404, `schematic ID "` + unknown + `" not found`},
		"/image/" + empty + "/v1.99.0/nocloud-amd64.raw.zst":   {404, "version v1.99.0 is not available"},
		"/image/" + empty + "/vx/nocloud-amd64.raw.zst":        {500, "internal server error"},
		"/image/" + empty + "/v1.13.5/nocloud-amd64.raw.lz4":   {400, "invalid profile path"},
		"/image/" + empty + "/v1.13.5/nocloud-riscv64.raw.zst": {400, "invalid profile path"},
		"/image/" + empty + "/v1.13.5/nocloud-amd64.qcow2":     {400, "invalid profile path"},
		"/image/" + empty + "/v1.13.5/nocloud-amd64/x.raw":     {404, ""},
		"/schematics/" + unknown:                               {404, "schematic not found"},
	} {
		if code, _, body := call(t, http.MethodGet, s.URL()+path, "", nil); code != want.code || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}

	if _, _, body := call(t, http.MethodGet, s.URL()+"/versions", "", nil); strings.TrimSpace(body) != `["v1.13.5"]` {
		t.Error(body)
	}
}

// Many ask at once: one build, no byte before it is done.
func TestABuildIsMadeOnce(t *testing.T) {
	const delay = 100 * time.Millisecond

	s := start(t, factory.Config{BuildDelay: time.Second, TimeScale: 0.1})
	url := s.URL() + "/image/" + empty + "/v1.13.5/nocloud-amd64.raw.zst"
	began := time.Now()

	var wg sync.WaitGroup

	for range 8 {
		wg.Go(func() {
			if code, _, _ := call(t, http.MethodHead, url, "", nil); code != http.StatusOK || time.Since(began) < delay {
				t.Error(code, time.Since(began))
			}
		})
	}

	wg.Wait()

	if took := time.Since(began); took > 8*delay {
		t.Errorf("took %s: built more than once", took)
	}
}

// A client that leaves does not end a build, and closing the factory does.
func TestCloseEndsBuilds(t *testing.T) {
	s := start(t, factory.Config{BuildDelay: time.Hour})

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/image/"+empty+"/v1.13.5/nocloud-amd64.raw.zst", nil)
	if err != nil {
		t.Fatal(err)
	}

	client := &http.Client{Transport: &http.Transport{}}
	if _, err := client.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestSchematicsSurviveARestart(t *testing.T) {
	config := factory.Config{DataDir: t.TempDir()}
	body := []byte("customization: {extraKernelArgs: [x]}")

	s, err := factory.New(config)
	if err != nil {
		t.Fatal(err)
	}

	id, err := s.Register(body)
	if err != nil {
		t.Fatal(err)
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = start(t, config)
	if code, _, _ := call(t, http.MethodHead, s.URL()+"/image/"+id+"/v1.13.5/nocloud-amd64.raw.zst", "", nil); code != http.StatusOK {
		t.Fatal(code)
	}

	if err := s.Forget(id); err != nil {
		t.Fatal(err)
	}

	if code, _, _ := call(t, http.MethodHead, s.URL()+"/image/"+id+"/v1.13.5/nocloud-amd64.raw.zst", "", nil); code != http.StatusNotFound {
		t.Fatal(code)
	}
}

// Large images lie in the data directory only while the factory runs.
func TestLargeImagesAreFilesAndGoAway(t *testing.T) {
	dir := t.TempDir()

	s, err := factory.New(factory.Config{DataDir: dir, ImageSize: 80 << 20, ContentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if _, _, err := fetch(t, imageAt(s)); err != nil {
			t.Error(err)
		}
	}

	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Error(entries, err)
	}

	if err := s.Close(); err != nil {
		t.Error(err)
	}

	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "schematics" {
		t.Error(entries, err)
	}
}

func TestSummaryCountsDownloads(t *testing.T) {
	s := start(t, factory.Config{})
	s.Inject(factory.Fault{Kind: factory.KindTruncate, Bytes: 1000, Times: 1})

	// The first one breaks off and goes on with a request more.
	for range 3 {
		if _, _, err := fetch(t, imageAt(s)); err != nil {
			t.Fatal(err)
		}
	}

	code, _, body := call(t, http.MethodGet, s.URL()+"/simulator/summary", "", nil)

	var sum factory.Summary

	key := empty + "/v1.13.5/nocloud-amd64.raw.zst"
	if err := json.Unmarshal([]byte(body), &sum); err != nil || code != http.StatusOK || sum.Downloads[key] != 3 || sum.Started[key] != 4 || sum.Schematics != 1 {
		t.Fatal(code, body, err)
	}

	if log := s.Calls(); len(log) != 4 || log[3].UserAgent != "test" || log[3].Bytes == 0 || log[3].Status != 200 {
		t.Fatalf("%+v", log)
	}
}

func TestATokenIsAskedFor(t *testing.T) {
	s := start(t, factory.Config{Token: "secret"})

	if code, _, _ := call(t, http.MethodGet, s.URL()+"/versions", "", nil); code != http.StatusUnauthorized {
		t.Fatal(code)
	}

	image := imageAt(s)
	image.Header = http.Header{"Authorization": {"Bearer secret"}}

	// The storage behind the redirect refuses the factory's credentials.
	s.Inject(factory.Fault{Kind: factory.KindRedirect})

	if _, _, err := fetch(t, image); err != nil {
		t.Fatal(err)
	}

	if log := s.Calls(); log[len(log)-1].Server != "storage" {
		t.Fatalf("%+v", log)
	}
}
