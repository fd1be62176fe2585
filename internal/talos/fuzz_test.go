package talos_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// answers serves one body without a network.
type answers []byte

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Request: req, ContentLength: int64(len(a)),
		Body: io.NopCloser(bytes.NewReader(a)),
	}, nil
}

// FuzzStream: whatever the factory sends, the stream ends, and ends well only
// with a disk as long as it says and with a digest.
func FuzzStream(f *testing.F) {
	raw := rawImage(f, 512, 1<<20)

	for _, form := range []string{"zst", "zst-stream", "xz", "gz"} {
		data := encode(f, form, raw)
		f.Add(data[:min(len(data), 64<<10)], uint16(0), byte(0))
		f.Add(data[:min(len(data), 64<<10)], uint16(30), byte(1))
	}

	f.Add(raw[:4096], uint16(600), byte(0))

	f.Fuzz(func(t *testing.T, data []byte, at1 uint16, flip byte) {
		if int(at1) < len(data) {
			data = bytes.Clone(data)
			data[at1] ^= flip
		}

		factory := talos.NewFactory(talos.FactoryConfig{HTTP: &http.Client{Transport: answers(data)}, ResumePause: -1})

		stream, err := factory.Open(t.Context(), at("http://factory.test"))
		if err != nil {
			return
		}
		defer stream.Close()

		// A bomb unpacks to more than any test should wait for.
		n, err := io.Copy(io.Discard, io.LimitReader(stream, 64<<20))
		if err == nil && n < 64<<20 && (uint64(n) != stream.Size() || stream.SHA256() == "") {
			t.Fatalf("%d of %d bytes ended well", n, stream.Size())
		}
	})
}
