package talos_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

const schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func rawImage(t testing.TB, sector int, size int64) []byte {
	t.Helper()

	img, err := talosimage.New(talosimage.Descriptor{Talos: "1.13.5", Schematic: schematic, Arch: "amd64", SectorSize: sector}, size, talosimage.Content{Bytes: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}

	raw, err := io.ReadAll(img.Reader())
	if err != nil {
		t.Fatal(err)
	}

	return raw
}

// encoded keeps what encode has made, by form and content: with the race detector
// packing takes longer than most tests.
var encoded sync.Map //nolint:gochecknoglobals // made once for all tests

// encode compresses raw; the zstd form declares its length, zst-stream does not.
func encode(t testing.TB, form string, raw []byte) []byte {
	t.Helper()

	key := fmt.Sprintf("%s %x", form, sha256.Sum256(raw))

	data, ok := encoded.Load(key)
	if !ok {
		data, _ = encoded.LoadOrStore(key, compress(t, form, raw))
	}

	return bytes.Clone(data.([]byte)) //nolint:errcheck // nothing else is stored
}

func compress(t testing.TB, form string, raw []byte) []byte {
	t.Helper()

	var (
		out bytes.Buffer
		w   io.WriteCloser
		err error
	)

	switch form {
	case "zst":
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}

		return enc.EncodeAll(raw, nil)
	case "zst-stream":
		w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	case "xz":
		// A small dictionary: each stream that is read takes memory for a whole one.
		// That of Talos' imager, 8 MiB, stands in the tests of blocks.
		w, err = xz.WriterConfig{DictCap: 1 << 16}.NewWriter(&out)
	case "gz":
		w = gzip.NewWriter(&out)
	case "raw":
		return raw
	}

	if err != nil {
		t.Fatal(err)
	}

	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return out.Bytes()
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()

	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)

	return srv.URL
}

// flush sends what was written so far; a client that has gone is no matter.
func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func newFactory(t testing.TB, config talos.FactoryConfig) *talos.Factory {
	t.Helper()

	// What breaks off stays so, except in the tests of that.
	if config.ResumePause == 0 {
		config.ResumePause = -1
	}

	f := talos.NewFactory(config)
	t.Cleanup(f.Close)

	return f
}

func at(base string) talos.ImageURL {
	return talos.ImageURL{Base: base, Schematic: schematic, Talos: "v1.13.5", Arch: "amd64"}
}

// download reads the whole image or fails on the way.
func download(t testing.TB, f *talos.Factory, image talos.ImageURL) (raw []byte, size uint64, sum string, err error) {
	t.Helper()

	stream, err := f.Open(t.Context(), image)
	if err != nil {
		return nil, 0, "", err
	}

	raw, err = io.ReadAll(stream)
	size, sum = stream.Size(), stream.SHA256()

	if err := stream.Close(); err != nil {
		t.Error(err)
	}

	return raw, size, sum, err
}

func kindOf(t testing.TB, err error) *talos.FactoryError {
	t.Helper()

	var fe *talos.FactoryError
	if !errors.As(err, &fe) {
		t.Fatalf("error of another type: %v", err)
	}

	text := err.Error()
	if strings.ContainsAny(text, "\n?") || strings.Contains(text, "secret") || !strings.Contains(text, schematic[:12]) || !strings.Contains(text, "127.0.0.1:") {
		t.Fatalf("unfit text: %q", text)
	}

	return fe
}

// Whatever the compression, the sector size and the answer's form, the bytes,
// the size and the digest are right.
func TestEveryFormIsUnderstoodByItsContent(t *testing.T) {
	for _, sector := range []int{512, 4096} {
		raw := rawImage(t, sector, 1<<20+8192)

		for _, form := range []string{"zst", "zst-stream", "xz", "gz", "raw"} {
			data := encode(t, form, raw)

			for _, chunked := range []bool{false, true} {
				base := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if want := "/lab/image/" + schematic + "/v1.13.5/nocloud-amd64.raw.zst"; r.URL.Path != want {
						t.Errorf("asked for %s", r.URL.Path)
					}

					if !chunked {
						w.Header().Set("Content-Length", strconv.Itoa(len(data)))
					}

					w.Write(data)
				})

				got, size, sum, err := download(t, newFactory(t, talos.FactoryConfig{}), at(base+"/lab/"))
				if err != nil || !bytes.Equal(got, raw) || size != uint64(len(raw)) {
					t.Fatalf("%s, sector %d, chunked %v: %d bytes of %d, size %d, %v", form, sector, chunked, len(got), len(raw), size, err)
				}

				if want := sha256.Sum256(data); sum != hex.EncodeToString(want[:]) {
					t.Fatalf("%s: digest %s", form, sum)
				}
			}
		}
	}
}

func TestAnImageOfSeveralFramesIsWhole(t *testing.T) {
	raw := rawImage(t, 512, 5<<18)

	for _, form := range []string{"zst", "xz"} {
		data := append(encode(t, form, raw[:1<<20+77]), encode(t, form, raw[1<<20+77:])...)
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })

		got, _, _, err := download(t, newFactory(t, talos.FactoryConfig{}), at(base))
		if err != nil || !bytes.Equal(got, raw) {
			t.Fatalf("%s: %d bytes, %v", form, len(got), err)
		}
	}
}

// Invariant: a stream that is cut or changed anywhere never ends well, whether
// or not the server told its length.
func TestDamageNeverEndsWell(t *testing.T) {
	t.Parallel()

	raw := rawImage(t, 512, 1<<20)
	f := newFactory(t, talos.FactoryConfig{})
	forms := []string{"zst", "zst-stream", "xz", "gz"}
	whole := map[string][]byte{}

	for _, form := range forms {
		whole[form] = encode(t, form, raw)
	}

	var (
		form    string
		damaged []byte
	)

	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Whole-Length") != "" {
			w.Header().Set("Content-Length", strconv.Itoa(len(whole[form])))
		}

		w.Write(damaged)
	})

	// One run over all forms: with the race detector each download takes a tenth
	// of a second.
	rapid.Check(t, func(rt *rapid.T) {
		image := at(base)
		form = rapid.SampledFrom(forms).Draw(rt, "form")
		data := whole[form]

		switch rapid.IntRange(0, 3).Draw(rt, "what") {
		case 0: // cut near the end
			damaged = data[:len(data)-rapid.IntRange(1, 64).Draw(rt, "missing")]
		case 1: // cut anywhere
			damaged = data[:rapid.IntRange(0, len(data)-1).Draw(rt, "length")]
		case 2: // cut, and the server told the length
			damaged = data[:rapid.IntRange(0, len(data)-1).Draw(rt, "length")]
			image.Header = http.Header{"X-Whole-Length": {"1"}}
		case 3: // something follows
			damaged = append(bytes.Clone(data), rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(rt, "tail")...)
			if bytes.Count(damaged[len(data):], []byte{0}) == len(damaged)-len(data) {
				return // padding with zeros is allowed in some forms
			}
		}

		if _, _, sum, err := download(t, f, image); err == nil || sum != "" {
			rt.Fatalf("%s: %d of %d bytes ended well", form, len(damaged), len(data))
		} else if k := kindOf(t, err).Kind; k != talos.KindContent {
			rt.Fatalf("%s: kind %d: %v", form, k, err)
		}
	})
}

// A flipped bit in the data is found by the decoder's checksum.
func TestCorruptByteIsFound(t *testing.T) {
	raw := rawImage(t, 512, 1<<20)
	f := newFactory(t, talos.FactoryConfig{})

	for _, form := range []string{"zst", "zst-stream", "xz", "gz"} {
		data := encode(t, form, raw)
		data[len(data)/2] ^= 0x10

		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })

		if _, _, _, err := download(t, f, at(base)); err == nil || kindOf(t, err).Kind != talos.KindContent {
			t.Errorf("%s: %v", form, err)
		}
	}
}

func TestALengthOtherThanThePartitionTableSaysIsRefused(t *testing.T) {
	raw := rawImage(t, 512, 1<<20)
	f := newFactory(t, talos.FactoryConfig{})

	for name, disk := range map[string][]byte{"short": raw[:len(raw)-512], "long": append(bytes.Clone(raw), make([]byte, 512)...)} {
		for _, form := range []string{"xz", "zst-stream", "raw"} {
			data := encode(t, form, disk)
			base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })

			if _, _, _, err := download(t, f, at(base)); err == nil || kindOf(t, err).Kind != talos.KindContent {
				t.Errorf("%s %s: %v", name, form, err)
			}
		}
	}
}

func TestOtherContentIsNamed(t *testing.T) {
	f := newFactory(t, talos.FactoryConfig{})

	for body, word := range map[string]string{
		"<!DOCTYPE html><html>sign in?token=secret</html>": "HTML",
		"\n <html>":                       "HTML",
		`{"error": "x"}`:                  "JSON",
		"<?xml version=\"1.0\"?><Error/>": "XML",
		"please log in":                   "plain text",
		"":                                "empty",
		"QFI\xfb\x00\x00\x00\x03":         "qcow2",
		"\x00\x01\x02\x03\x04":            "00010203",
		string(encode(t, "zst", make([]byte, 5e5))): "no GUID partition table",
		string(encode(t, "xz", []byte("tiny"))):     "no GUID partition table",
	} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) })

		_, err := f.Open(t.Context(), at(base))
		if e := kindOf(t, err); e.Kind != talos.KindContent || !strings.Contains(err.Error(), word) {
			t.Errorf("%.20q: %v", body, err)
		}
	}
}

func TestAnswersThatAreNoImage(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	f := newFactory(t, talos.FactoryConfig{Now: func() time.Time { return now }})

	for _, test := range []struct {
		code   int
		header http.Header
		body   string
		kind   talos.Kind
		after  time.Duration
		asked  int
	}{
		{code: 404, body: `schematic ID "ab" not found`, kind: talos.KindNotFound, asked: 1},
		{code: 404, body: "version v1.13.5 is not available", kind: talos.KindVersionNotFound, asked: 1},
		{code: 404, body: "404 page not found", kind: talos.KindNotFound, asked: 2},
		{code: 400, body: "invalid profile path", kind: talos.KindContent, asked: 2},
		{code: 418, kind: talos.KindContent, asked: 1},
		{code: 401, kind: talos.KindAuth, asked: 1},
		{code: 402, kind: talos.KindAuth, asked: 1},
		{code: 403, kind: talos.KindAuth, asked: 1},
		{code: 500, body: "<html>oops?token=secret</html>", kind: talos.KindServer, asked: 1},
		{code: 502, kind: talos.KindServer, asked: 1},
		{code: 503, kind: talos.KindRetryLater, asked: 1},
		{code: 429, header: http.Header{"Retry-After": {"20"}}, kind: talos.KindRetryLater, after: 20 * time.Second, asked: 1},
		{code: 429, header: http.Header{"Retry-After": {"999999"}}, kind: talos.KindRetryLater, after: time.Hour, asked: 1},
		{code: 429, header: http.Header{"Retry-After": {"soon"}}, kind: talos.KindRetryLater, asked: 1},
		{
			code: 503, header: http.Header{"Retry-After": {"Mon, 04 May 2026 03:02:31 GMT"}, "Date": nil},
			kind: talos.KindRetryLater, after: 30 * time.Second, asked: 1,
		},
		{
			code: 503, header: http.Header{"Retry-After": {"Mon, 04 May 2026 03:02:31 GMT"}, "Date": {"Mon, 04 May 2026 03:02:21 GMT"}},
			kind: talos.KindRetryLater, after: 10 * time.Second, asked: 1,
		},
		{
			code: 429, header: http.Header{"Retry-After": {"Mon, 04 May 2020 03:02:31 GMT"}},
			kind: talos.KindRetryLater, asked: 1,
		},
	} {
		asked := 0
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++

			for name, values := range test.header {
				w.Header()[name] = values
			}

			w.WriteHeader(test.code)
			io.WriteString(w, test.body) //nolint:errcheck // the reader notices
		})

		_, err := f.Open(t.Context(), at(base))
		if e := kindOf(t, err); e.Kind != test.kind || e.Status != test.code || e.RetryAfter != test.after || asked != test.asked {
			t.Errorf("%d %s: kind %d, after %s, asked %d times: %v", test.code, test.body, e.Kind, e.RetryAfter, asked, err)
		}
	}
}

func TestXZIsAskedForWhenZstdIsNotServed(t *testing.T) {
	raw := rawImage(t, 512, 1<<20)
	data := encode(t, "xz", raw)

	for _, code := range []int{400, 404} {
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/nocloud-arm64-secureboot.raw.xz") {
				http.Error(w, "invalid profile path", code)

				return
			}

			w.Write(data)
		})

		image := at(base)
		image.Arch, image.SecureBoot = "arm64", true

		if got, _, _, err := download(t, newFactory(t, talos.FactoryConfig{}), image); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// Credentials are for the factory alone, even when a redirect leads back to it.
func TestRedirectsCarryNoCredentials(t *testing.T) {
	data := encode(t, "zst", rawImage(t, 512, 1<<20))

	storage := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Authorization", "X-Api-Key", "Referer", "Cookie"} {
			if r.Header.Get(name) != "" {
				t.Errorf("the other host got %s", name)
			}
		}

		if r.UserAgent() != "test/1" || r.URL.RawQuery != "signature=secret" {
			t.Errorf("the other host got %q, %q", r.UserAgent(), r.URL.RawQuery)
		}

		w.Write(data)
	})

	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("X-Api-Key") != "secret" {
			t.Error("the factory got no credentials")
		}

		if r.URL.Path != "/here" {
			http.Redirect(w, r, "/here", http.StatusFound)

			return
		}

		http.Redirect(w, r, storage+"/object?signature=secret", http.StatusFound)
	})

	image := at(base)
	image.Header = http.Header{"Authorization": {"Bearer secret"}, "X-Api-Key": {"secret"}}

	if _, _, _, err := download(t, newFactory(t, talos.FactoryConfig{UserAgent: "test/1"}), image); err != nil {
		t.Fatal(err)
	}
}

func TestRedirectsAreBounded(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"?token=secret", http.StatusFound)
	})

	if _, err := newFactory(t, talos.FactoryConfig{}).Open(t.Context(), at(base)); kindOf(t, err).Kind != talos.KindTransport {
		t.Fatal(err)
	}

	bad := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://%zz/?token=secret")
		w.WriteHeader(http.StatusFound)
	})

	if _, err := newFactory(t, talos.FactoryConfig{}).Open(t.Context(), at(bad)); kindOf(t, err).Kind != talos.KindTransport {
		t.Fatal(err)
	}
}

func TestAFactoryThatStandsStill(t *testing.T) {
	data := encode(t, "zst", rawImage(t, 512, 5<<18))
	quit := make(chan struct{})

	before := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-quit:
		}
	})
	within := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(data[:len(data)/2])
		flush(w)

		select {
		case <-r.Context().Done():
		case <-quit:
		}
	})

	t.Cleanup(func() { close(quit) })

	f := newFactory(t, talos.FactoryConfig{HeaderTimeout: 20 * time.Millisecond, IdleTimeout: time.Hour})
	if _, err := f.Open(t.Context(), at(before)); kindOf(t, err).Kind != talos.KindTransport || !strings.Contains(err.Error(), "no answer") {
		t.Error(err)
	}

	f = newFactory(t, talos.FactoryConfig{HeaderTimeout: time.Minute, IdleTimeout: 50 * time.Millisecond})
	if _, _, _, err := download(t, f, at(within)); kindOf(t, err).Kind != talos.KindTransport || !strings.Contains(err.Error(), "stood still") {
		t.Error(err)
	}
}

// A consumer that takes its time is not an idle factory.
func TestASlowConsumerIsNotIdle(t *testing.T) {
	raw := rawImage(t, 512, 8<<20)
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(raw) })

	const idle = 60 * time.Millisecond

	stream, err := newFactory(t, talos.FactoryConfig{IdleTimeout: idle}).Open(t.Context(), at(base))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()

	<-time.After(2 * idle)

	if n, err := io.Copy(io.Discard, stream); err != nil || n != int64(len(raw)) {
		t.Fatal(n, err)
	}
}

func TestCancelEndsTheDownload(t *testing.T) {
	raw := rawImage(t, 512, 8<<20)
	quit := make(chan struct{})
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(raw[:4<<20])
		flush(w)

		select {
		case <-r.Context().Done():
		case <-quit:
		}
	})

	t.Cleanup(func() { close(quit) })

	ctx, cancel := context.WithCancel(t.Context())

	stream, err := newFactory(t, talos.FactoryConfig{}).Open(ctx, at(base))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()

	cancel()

	if _, err := io.Copy(io.Discard, stream); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestProgressIsTold(t *testing.T) {
	data := encode(t, "zst", rawImage(t, 512, 1<<20))
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		w.Write(data)
	})

	stream, err := newFactory(t, talos.FactoryConfig{}).Open(t.Context(), at(base))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()

	if _, err := io.Copy(io.Discard, iotest.OneByteReader(stream)); err != nil {
		t.Fatal(err)
	}

	if done, total := stream.Downloaded(); done != int64(len(data)) || total != done || stream.Name() != "nocloud-amd64.raw.zst" {
		t.Fatal(done, total, stream.Name())
	}
}

func TestMalformedQuestionsAreRefused(t *testing.T) {
	f := newFactory(t, talos.FactoryConfig{})

	for _, change := range []func(*talos.ImageURL){
		func(i *talos.ImageURL) { i.Base = "factory.lan" },
		func(i *talos.ImageURL) { i.Base = "ftp://factory.lan" },
		func(i *talos.ImageURL) { i.Base = "https://" },
		func(i *talos.ImageURL) { i.Schematic = "../x" },
		func(i *talos.ImageURL) { i.Schematic = "" },
		func(i *talos.ImageURL) { i.Talos = "latest" },
		func(i *talos.ImageURL) { i.Arch = "riscv64" },
	} {
		image := at("http://127.0.0.1:1")
		change(&image)

		var fe *talos.FactoryError
		if _, err := f.Open(t.Context(), image); err == nil || errors.As(err, &fe) {
			t.Errorf("%+v: %v", image, err)
		}
	}

	if _, err := f.Open(t.Context(), at("http://127.0.0.1:1")); kindOf(t, err).Kind != talos.KindTransport {
		t.Error(err)
	}
}
