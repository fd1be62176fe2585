package talos_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// Invariant: however the answer dribbles in and in whatever pieces it is read,
// the bytes that come out are the disk's, in order and complete.
func TestBytesDoNotDependOnHowTheyArrive(t *testing.T) {
	t.Parallel()

	raw := rawImage(t, 512, 1<<20+512*7)
	answers := map[string][]byte{}

	for _, form := range []string{"zst", "zst-stream", "xz", "gz", "raw"} {
		answers[form] = encode(t, form, raw)
	}

	var (
		data   []byte
		pieces []int
	)

	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		rest := data

		for i := 0; len(rest) > 0; i++ {
			n := min(pieces[i%len(pieces)], len(rest))
			if i > 200 {
				n = len(rest)
			}

			w.Write(rest[:n])
			flush(w)

			rest = rest[n:]
		}
	})
	f := newFactory(t, talos.FactoryConfig{})

	rapid.Check(t, func(rt *rapid.T) {
		data = answers[rapid.SampledFrom([]string{"zst", "zst-stream", "xz", "gz", "raw"}).Draw(rt, "form")]
		pieces = rapid.SliceOfN(rapid.IntRange(1, 20_000), 1, 20).Draw(rt, "written")
		reads := rapid.SliceOfN(rapid.IntRange(1, 700_000), 1, 10).Draw(rt, "read")

		stream, err := f.Open(t.Context(), at(base))
		if err != nil {
			rt.Fatal(err)
		}
		defer stream.Close()

		var got []byte

		for i := 0; ; i++ {
			p := make([]byte, reads[i%len(reads)])

			n, err := stream.Read(p)
			got = append(got, p[:n]...)

			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				rt.Fatal(err)
			}
		}

		if !bytes.Equal(got, raw) || stream.Size() != uint64(len(raw)) {
			rt.Fatalf("%d of %d bytes, or other ones", len(got), len(raw))
		}

		if n, err := stream.Read(make([]byte, 9)); n != 0 || !errors.Is(err, io.EOF) {
			rt.Fatal("the end does not stay: ", n, err)
		}
	})
}

// A stream that was cut between its last block and its index looks whole to the
// xz decoder.
func TestAnXZStreamThatLostItsEndIsRefused(t *testing.T) {
	t.Parallel()

	data := encode(t, "xz", rawImage(t, 512, 1<<20))
	f := newFactory(t, talos.FactoryConfig{})

	var cut []byte

	base := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(cut); err != nil {
			t.Error(err)
		}
	})

	for missing := 0; missing < 65; missing += 5 { // the parts are multiples of four
		cut = data[:len(data)-missing]

		_, _, sum, err := download(t, f, at(base))
		if missing == 0 && err != nil {
			t.Errorf("the whole stream: %v", err)
		}

		if missing > 0 && (err == nil || sum != "") {
			t.Errorf("without its last %d bytes it ended well", missing)
		}
	}
}
