package image_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	owner   = "abcdefghijklmnopqrstuvwxyz"
	project = "7a0c1f6e-0000-4000-8000-000000000001"
	other   = "7a0c1f6e-0000-4000-8000-000000000002"
	chunk   = 512 << 10
)

func identity() naming.ImageIdentity {
	return naming.ImageIdentity{
		Schematic: strings.Repeat("3765", 16), Talos: "1.13.5", Arch: "amd64", FactoryHost: "factory.talos.dev",
	}
}

func want() image.Want { return image.Want{Identity: identity(), ProjectID: project} }

// disk makes the bytes of an image of so many chunks: the first has a
// partition table, every third is zeros.
func disk(chunks, block int) []byte {
	b := make([]byte, chunks*chunk)

	for i := range chunks {
		if i%3 != 2 {
			for n := i * chunk; n < (i+1)*chunk; n += 4096 {
				b[n], b[n+1], b[n+2] = byte(n>>12), byte(n>>20), 1
			}
		}
	}

	clear(b[:2*4096])
	copy(b[block:], "EFI PART")

	return b
}

// fakeSource is an image factory.
type fakeSource struct {
	*journal

	mu    sync.Mutex
	data  []byte
	errs  []error       // of the next calls, one each; nil opens
	build time.Duration // before the first byte
	size  uint64        // instead of the length of data
	fail  error         // of the stream, in its middle
	pace  time.Duration // of each read
	asked []naming.ImageIdentity
}

func (s *fakeSource) Open(ctx context.Context, id naming.ImageIdentity) (image.Stream, error) {
	s.add("open")

	s.mu.Lock()
	s.asked = append(s.asked, id)

	var err error
	if len(s.errs) > 0 {
		err, s.errs = s.errs[0], s.errs[1:]
	}
	s.mu.Unlock()

	if err != nil {
		return nil, err
	}

	// Never under the lock: the fake clock stands still while one waits for it.
	if s.build > 0 {
		select {
		case <-time.After(s.build):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}

	size := s.size
	if size == 0 {
		size = uint64(len(s.data))
	}

	return &fakeStream{ctx: ctx, r: bytes.NewReader(s.data), size: size, fail: s.fail, half: len(s.data) / 2, pace: s.pace}, nil
}

type fakeStream struct {
	ctx  context.Context
	r    *bytes.Reader
	size uint64
	half int
	fail error
	pace time.Duration
}

// Read dribbles, so that reads and chunks never fall together.
func (s *fakeStream) Read(p []byte) (int, error) {
	if s.pace > 0 {
		select {
		case <-time.After(s.pace):
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
	}

	if s.fail != nil && s.r.Len() < s.half {
		return 0, s.fail
	}

	return s.r.Read(p[:min(len(p), 100_003)])
}

func (s *fakeStream) Close() error   { return nil }
func (s *fakeStream) Size() uint64   { return s.size }
func (s *fakeStream) SHA256() string { return strings.Repeat("ab", 32) }
func (s *fakeStream) Name() string   { return "nocloud-amd64.raw.zst" }

var _ io.ReadCloser = (*fakeStream)(nil)

// fakeOmni keeps the records of runs.
type fakeOmni struct {
	*journal

	mu   sync.Mutex
	runs map[string]image.RunInfo
	err  error
}

func (o *fakeOmni) of(run string) image.Runs { return &fakeRuns{o, run} }

func (o *fakeOmni) set(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.err = err
}

func (o *fakeOmni) records() map[string]image.RunInfo {
	o.mu.Lock()
	defer o.mu.Unlock()

	all := map[string]image.RunInfo{}
	for k, v := range o.runs {
		all[k] = v
	}

	return all
}

type fakeRuns struct {
	omni *fakeOmni
	own  string
}

func (r *fakeRuns) Renew(ctx context.Context, projects []string, uploads []image.JobInfo) error {
	if effect, _ := lives(ctx); !effect {
		return context.Canceled
	}

	r.omni.mu.Lock()
	defer r.omni.mu.Unlock()

	r.omni.add("renew " + strings.Join(projects, ","))

	if r.omni.err != nil {
		return r.omni.err
	}

	r.omni.runs[r.own] = image.RunInfo{
		ID: r.own, Sequence: r.omni.runs[r.own].Sequence + 1, ProjectIDs: slices.Clone(projects), Uploads: uploads,
	}

	return nil
}

func (r *fakeRuns) Others(context.Context) ([]image.RunInfo, error) {
	r.omni.mu.Lock()
	defer r.omni.mu.Unlock()

	if r.omni.err != nil {
		return nil, r.omni.err
	}

	var all []image.RunInfo

	for id, i := range r.omni.runs {
		if id != r.own {
			all = append(all, i)
		}
	}

	return all, nil
}

func (r *fakeRuns) Forget(ctx context.Context, id string) error {
	if effect, _ := lives(ctx); !effect {
		return context.Canceled
	}

	r.omni.mu.Lock()
	defer r.omni.mu.Unlock()

	r.omni.add("forget " + id)
	delete(r.omni.runs, id)

	return r.omni.err
}

// world is one rack, one factory and one Omni on a fake clock.
type world struct {
	*journal

	rack   *fakeRack
	source *fakeSource
	omni   *fakeOmni
	life   *life // of the managers started from now on
}

func newWorld() *world {
	j := &journal{}

	return &world{
		journal: j,
		rack:    newRack(j),
		source:  &fakeSource{journal: j, data: disk(7, 512)},
		omni:    &fakeOmni{journal: j, runs: map[string]image.RunInfo{}},
	}
}

func (l *life) context(t *testing.T) context.Context {
	t.Helper()

	if l == nil {
		return t.Context()
	}

	return context.WithValue(t.Context(), lifeKey{}, l)
}

// start runs a manager until the returned function has ended it.
func (w *world) start(t *testing.T, run string, change func(*image.Config)) (*image.Manager, func()) {
	t.Helper()

	cfg := image.Config{
		Rack: w.rack, Source: w.source, Runs: w.omni.of(run), Log: zaptest.NewLogger(t, zaptest.Level(zapLevel)),
		Owner: owner, Provider: "oxide", Run: run,
	}
	if change != nil {
		change(&cfg)
	}

	m := image.New(cfg)
	ctx, cancel := context.WithCancel(w.life.context(t))
	done := make(chan error, 1)

	go func() { done <- m.Run(ctx) }()

	synctest.Wait()

	return m, func() {
		t.Helper()
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// test runs f with one manager on a fake clock, and checks that the manager
// leaves nothing behind.
func test(t *testing.T, w *world, f func(t *testing.T, m *image.Manager)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		m, stop := w.start(t, "0a1b2c3d", nil)
		f(t, m)
		stop()
		w.rack.checkEmpty(t)

		if n := len(w.omni.records()); n != 0 {
			t.Errorf("%d records of runs are left", n)
		}
	})
}

func ask(t *testing.T, m *image.Manager, w image.Want) image.Status {
	t.Helper()

	s, err := m.Ask(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}

	if s.Ready == (s.Reason != "") || len(s.Reason) > 200 || strings.Contains(s.Reason, "\n") || !s.Ready && s.RetryIn <= 0 {
		t.Fatalf("not a status: %+v", s)
	}

	return s
}

// until asks as a step does, until the image is ready.
func until(t *testing.T, m *image.Manager, w image.Want, limit time.Duration) image.Status {
	t.Helper()

	start := time.Now()
	for {
		s := ask(t, m, w)
		if s.Ready {
			return s
		}

		if time.Since(start) > limit {
			t.Fatalf("not ready after %s: %s", limit, s.Reason)
		}

		time.Sleep(s.RetryIn)
	}
}

// said asks each second until the reason has all the parts.
func said(t *testing.T, m *image.Manager, parts ...string) {
	t.Helper()

	for range 300 {
		s := ask(t, m, want())
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s.Reason, p) }) {
			return
		}

		time.Sleep(time.Second)
	}

	t.Fatalf("never said %q", parts)
}

// settle gives undos time to end.
func settle(t *testing.T, w *world, limit time.Duration) {
	t.Helper()

	start := time.Now()
	for len(w.rack.left()) > 0 && time.Since(start) < limit {
		time.Sleep(time.Second)
	}

	synctest.Wait()
	w.rack.checkEmpty(t)
}

// checkContent holds an image against the bytes that the factory sent.
func checkContent(t *testing.T, img *fakeImage, want []byte) {
	t.Helper()

	got := make([]byte, (len(want)+4095)/4096*4096)
	for offset, data := range img.data {
		if offset+uint64(len(data)) > uint64(len(got)) {
			t.Fatalf("%d bytes at %d of an image of %d", len(data), offset, len(want))
		}

		copy(got[offset:], data)
	}

	if !bytes.Equal(got[:len(want)], want) || bytes.Count(got[len(want):], []byte{0}) != len(got)-len(want) {
		t.Error("the image is not what the factory sent")
	}
}

func one(t *testing.T, w *world) *fakeImage {
	t.Helper()

	all := w.rack.imageList()
	if len(all) != 1 {
		t.Fatalf("%d images instead of one", len(all))
	}

	return all[0]
}

func factoryError(kind talos.Kind, status int) *talos.FactoryError {
	return &talos.FactoryError{
		Kind: kind, Status: status, Factory: "factory.talos.dev", Schematic: identity().Schematic,
		Talos: "1.13.5", File: "nocloud-amd64.raw.zst",
	}
}
