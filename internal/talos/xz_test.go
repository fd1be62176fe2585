package talos_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/factory"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// xzOfBlocks is an image as Talos' imager packs it, and the disk in it: one
// stream of blocks of 1 MiB that tell their sizes. It is packed once, which
// takes a while.
func xzOfBlocks(t testing.TB) (packed, raw []byte) {
	t.Helper()

	pack.Do(func() {
		sim, err := factory.New(factory.Config{ImageSize: 2<<20 + 512*9, ContentBytes: 40 << 10})
		if err != nil {
			t.Fatal(err)
		}

		defer func() {
			if err := sim.Close(); err != nil {
				t.Error(err)
			}
		}()

		file := sim.URL() + "/image/" + post(t, sim.URL()+"/schematics", "customization: {}\n") + "/v1.13.5/nocloud-amd64.raw"
		packedOnce, rawOnce = fetch(t, file+".xz"), fetch(t, file)
	})

	return packedOnce, rawOnce
}

//nolint:gochecknoglobals // made once for all tests
var (
	pack                sync.Once
	packedOnce, rawOnce []byte
)

func post(t testing.TB, url, body string) string {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	_, id, _ := strings.Cut(string(answered(t, req)), `"id":"`)
	id, _, _ = strings.Cut(id, `"`)

	return id
}

func fetch(t testing.TB, url string) []byte {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	return answered(t, req)
}

func answered(t testing.TB, req *http.Request) []byte {
	t.Helper()

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()

	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s: %s, %v", req.URL.Path, resp.Status, err)
	}

	return data
}

// Invariant: blocks that are decoded side by side come out in their order, and
// other streams and padding may follow.
func TestXZBlocksComeOutInOrder(t *testing.T) {
	t.Parallel()

	packed, raw := xzOfBlocks(t)
	half := len(raw) / 2 / 512 * 512
	pad := make([]byte, 8)

	for name, data := range map[string][]byte{
		"one stream":              packed,
		"padding":                 append(bytes.Clone(packed), pad...),
		"streams, one of a block": bytes.Join([][]byte{encode(t, "xz", raw[:half]), pad, encode(t, "xz", raw[half:])}, nil),
	} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })
		f := newFactory(t, talos.FactoryConfig{})

		for _, read := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r },
			iotest.HalfReader,
		} {
			stream, err := f.Open(t.Context(), at(base))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}

			got, err := io.ReadAll(read(stream))
			if err != nil || !bytes.Equal(got, raw) {
				t.Errorf("%s: %d of %d bytes: %v", name, len(got), len(raw), err)
			}

			if err := stream.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Invariant: a stream of blocks that is cut anywhere does not end well, and one
// that was changed anywhere, its index and footer included, does not end with
// another disk.
func TestDamagedXZBlocksAreFound(t *testing.T) {
	t.Parallel()

	packed, raw := xzOfBlocks(t)
	f := newFactory(t, talos.FactoryConfig{})

	var data []byte

	base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })

	// Headers, the first block's data, index and footer.
	places := []int{0, 9, 12, 13, 17, 20, 29, 31, len(packed) / 2}
	for n := 1; n <= 60; n += 7 {
		places = append(places, len(packed)-n)
	}

	for i, place := range places {
		data = packed[:place]

		if _, _, sum, err := download(t, f, at(base)); err == nil || sum != "" {
			t.Errorf("cut at %d of %d and ended well", place, len(packed))
		}

		data = bytes.Clone(packed)
		data[place] ^= 1 << (i % 8)

		if got, _, _, err := download(t, f, at(base)); err == nil && !bytes.Equal(got, raw) {
			t.Errorf("changed at %d of %d and ended well", place, len(packed))
		}
	}
}

// A stream may be given up while blocks are being decoded.
func TestAStreamOfBlocksCanBeLeft(t *testing.T) {
	t.Parallel()

	packed, _ := xzOfBlocks(t)
	base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(packed) })

	stream, err := newFactory(t, talos.FactoryConfig{}).Open(t.Context(), at(base))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := io.CopyN(io.Discard, stream, 100_000); err != nil {
		t.Fatal(err)
	}

	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
}

// Absurd windows are refused by name, before memory is taken for them.
func TestWindowsAreBounded(t *testing.T) {
	t.Parallel()

	// A frame that says it needs 128 MiB, and a block whose dictionary is 1.5 GiB.
	frame := "\x28\xb5\x2f\xfd\x04\x88" + strings.Repeat("\x00", 40)
	stream := "\xfd7zXZ\x00\x00\x01\x69\x22\xde\x36" + "\x02\x00\x21\x01\x25\x00\x00\x00" + "\x00\x00\x00\x00"
	stream = stream[:20] + crc(stream[12:20]) + strings.Repeat("\x01", 100)

	for name, body := range map[string]string{"zstd": frame, "xz": stream} {
		base := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) })

		_, err := newFactory(t, talos.FactoryConfig{}).Open(t.Context(), at(base))
		if err == nil || kindOf(t, err).Kind != talos.KindContent || !strings.Contains(err.Error(), "window") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func crc(s string) string {
	return string(binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(s))))
}
