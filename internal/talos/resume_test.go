package talos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// flaky serves a file and breaks each answer off.
type flaky struct {
	mu      sync.Mutex
	data    []byte
	etag    string // offers ranges
	breaks  []int  // after so many bytes of the answers, one each; whole afterwards
	stall   bool   // stands still instead of breaking off
	refuse  []int  // statuses of the next answers after the first, 0 for none
	asked   []string
	quit    chan struct{}
	between func(f *flaky) // after each answer
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	n := len(f.asked)
	f.asked = append(f.asked, r.Header.Get("Range"))
	data, etag := f.data, f.etag

	status, limit := 0, -1
	if n > 0 && len(f.refuse) > 0 {
		status, f.refuse = f.refuse[0], f.refuse[1:]
	} else if len(f.breaks) > 0 {
		limit, f.breaks = f.breaks[0], f.breaks[1:]
	}

	if f.between != nil {
		f.between(f)
	}
	f.mu.Unlock()

	if status != 0 {
		w.WriteHeader(status)

		return
	}

	from := 0

	if etag != "" {
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("ETag", etag)

		if r.Header.Get("If-Range") == etag {
			fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from) //nolint:errcheck // 0 then
		}
	}

	w.Header().Set("Content-Length", strconv.Itoa(len(data)-from))

	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
	}

	data = data[from:]
	if limit >= 0 && limit < len(data) {
		data = data[:limit]
	}

	w.Write(data)
	flush(w)

	if limit >= 0 && f.stall {
		select {
		case <-r.Context().Done():
		case <-f.quit:
		}
	}

	if limit >= 0 {
		panic(http.ErrAbortHandler)
	}
}

func (f *flaky) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.asked
}

// Invariant: a download that breaks off or stands still goes on where it was,
// with or without ranges, and the disk and the digest are those of the file.
func TestADownloadThatBreaksOffGoesOn(t *testing.T) {
	t.Parallel()

	raw := rawImage(t, 512, 1<<20)

	for _, form := range []string{"zst", "raw"} {
		data := encode(t, form, raw)
		third := len(data) / 3

		for name, test := range map[string]struct {
			*flaky
			ranges []string
		}{
			"with ranges": {
				&flaky{etag: `"a"`, breaks: []int{third, third}},
				[]string{"", fmt.Sprintf("bytes=%d-", third), fmt.Sprintf("bytes=%d-", 2*third)},
			},
			"without ranges":         {&flaky{breaks: []int{third, 2 * third}}, []string{"", "", ""}},
			"before the first byte":  {&flaky{etag: `"a"`, breaks: []int{0}}, []string{"", ""}},
			"a weak tag":             {&flaky{etag: `W/"a"`, breaks: []int{third}}, []string{"", ""}},
			"standing still":         {&flaky{etag: `"a"`, breaks: []int{third}, stall: true}, []string{"", fmt.Sprintf("bytes=%d-", third)}},
			"a factory that is busy": {&flaky{breaks: []int{third}, refuse: []int{503, 500, 429}}, []string{"", "", "", "", ""}},
		} {
			f := test.flaky
			f.data, f.quit = data, make(chan struct{})
			base := serve(t, f.ServeHTTP)

			got, _, sum, err := download(t, newFactory(t, talos.FactoryConfig{ResumePause: time.Millisecond, IdleTimeout: 200 * time.Millisecond}), at(base))
			close(f.quit)

			want := sha256.Sum256(data)
			if err != nil || !bytes.Equal(got, raw) || sum != hex.EncodeToString(want[:]) {
				t.Errorf("%s, %s: %d of %d bytes, %s, %v", form, name, len(got), len(raw), sum, err)
			}

			if asked := f.requests(); strings.Join(asked, ",") != strings.Join(test.ranges, ",") {
				t.Errorf("%s, %s: asked for %q", form, name, asked)
			}
		}
	}
}

// Invariant: the rest of another file is never taken for the rest of this one.
func TestAFileThatChangesIsNotGoneOnWith(t *testing.T) {
	t.Parallel()

	raw := rawImage(t, 512, 1<<20)
	changed := bytes.Clone(raw)
	changed[900] ^= 1

	for name, test := range map[string]struct {
		etag string
		data []byte
	}{
		"other bytes": {"", changed}, "other length": {"", raw[:len(raw)-512]}, "other tag": {`"b"`, changed},
	} {
		f := &flaky{data: raw, breaks: []int{len(raw) / 2}, between: func(f *flaky) { f.data, f.etag = test.data, test.etag }}
		if test.etag != "" {
			f.etag = `"a"`
		}

		base := serve(t, f.ServeHTTP)

		_, _, sum, err := download(t, newFactory(t, talos.FactoryConfig{ResumePause: time.Millisecond}), at(base))
		if err == nil || sum != "" || !strings.Contains(err.Error(), "changed") || kindOf(t, err).Kind != talos.KindTransport || len(f.requests()) != 2 {
			t.Errorf("%s: %v, asked %d times", name, err, len(f.requests()))
		}
	}
}

// Invariant: without progress the factory is asked a bounded number of times.
func TestADownloadThatNeverGetsOnEnds(t *testing.T) {
	t.Parallel()

	raw := rawImage(t, 512, 1<<20)
	third := len(raw) / 3

	f := &flaky{data: raw, breaks: []int{third, third, third, third, third, third, third, third, third, third}}
	base := serve(t, f.ServeHTTP)

	_, _, _, err := download(t, newFactory(t, talos.FactoryConfig{ResumePause: time.Millisecond}), at(base))
	if err == nil || kindOf(t, err).Kind != talos.KindContent || len(f.requests()) != 6 {
		t.Errorf("%v, asked %d times", err, len(f.requests()))
	}

	// What can not pass is not asked for twice.
	f = &flaky{data: raw, breaks: []int{third}, refuse: []int{404, 404}}
	base = serve(t, f.ServeHTTP)

	_, _, _, err = download(t, newFactory(t, talos.FactoryConfig{ResumePause: time.Millisecond}), at(base))
	if err == nil || kindOf(t, err).Kind != talos.KindNotFound || len(f.requests()) != 2 {
		t.Errorf("%v, asked %d times", err, len(f.requests()))
	}
}

// Invariant: each try has the address and the credentials of its moment, and the
// range goes to the storage that the factory names while they do not.
func TestTheRestIsAskedForAtAFreshAddress(t *testing.T) {
	t.Parallel()

	raw := rawImage(t, 512, 1<<20)
	f := &flaky{data: raw, etag: `"a"`, breaks: []int{len(raw) / 2}}

	storage := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the storage got credentials")
		}

		f.ServeHTTP(w, r)
	})

	var (
		mu     sync.Mutex
		tokens []string
	)

	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		tokens = append(tokens, r.Header.Get("Authorization"))
		mu.Unlock()

		http.Redirect(w, r, storage+"/object?signature=secret", http.StatusFound)
	})

	image := at(base)
	image.Header = http.Header{"Authorization": {"first"}}
	image.Again = func(context.Context) (talos.ImageURL, error) {
		later := at(base)
		later.Header = http.Header{"Authorization": {"second"}}

		return later, nil
	}

	got, _, _, err := download(t, newFactory(t, talos.FactoryConfig{ResumePause: time.Millisecond}), image)
	if err != nil || !bytes.Equal(got, raw) {
		t.Fatal(len(got), err)
	}

	if strings.Join(tokens, ",") != "first,second" || f.requests()[1] == "" {
		t.Errorf("tokens %q, ranges %q", tokens, f.requests())
	}
}

// The end of the context ends the wait for the next try too.
func TestCancelEndsTheWaitForTheRest(t *testing.T) {
	t.Parallel()

	raw := rawImage(t, 512, 8<<20)
	f := &flaky{data: raw, breaks: []int{4 << 20}}
	base := serve(t, f.ServeHTTP)

	ctx, cancel := context.WithCancel(t.Context())

	stream, err := newFactory(t, talos.FactoryConfig{ResumePause: time.Hour}).Open(ctx, at(base))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()

	time.AfterFunc(50*time.Millisecond, cancel)

	buf := make([]byte, 1<<20)
	for err == nil {
		_, err = stream.Read(buf)
	}

	if ctx.Err() == nil || !strings.Contains(err.Error(), "canceled") {
		t.Error(err)
	}
}
