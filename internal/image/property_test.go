package image_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"google.golang.org/grpc/test/bufconn"
	"pgregory.net/rapid"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

// script is one image and all that goes wrong on its way.
type script struct {
	raw    []byte
	form   string
	packed []byte
	ranges bool
	cuts   []int // bytes after which the factory's answers break off, one each
	status []int // of the factory's first answers
	faults []simrack.Fault
}

func drawScript(t *rapid.T) script {
	sector := rapid.SampledFrom([]int{512, 4096}).Draw(t, "sector")
	size := int64(rapid.IntRange(256, 700).Draw(t, "4 KiB blocks") * 4096)

	img, err := talosimage.New(talosimage.Descriptor{Talos: "1.13.5", Schematic: identity().Schematic, Arch: "amd64", SectorSize: sector},
		size, talosimage.Content{Bytes: int64(rapid.IntRange(0, int(size/3)).Draw(t, "content"))})
	if err != nil {
		t.Fatal(err)
	}

	raw, err := io.ReadAll(img.Reader())
	if err != nil {
		t.Fatal(err)
	}

	s := script{raw: raw, form: rapid.SampledFrom([]string{"zst", "zst", "gz", "raw", "xz"}).Draw(t, "form")}
	s.packed = pack(t, s.form, raw)
	s.ranges = rapid.Bool().Draw(t, "ranges")
	s.cuts = rapid.SliceOfN(rapid.IntRange(0, len(s.packed)-1), 0, 4).Draw(t, "cuts")
	s.status = rapid.SliceOfN(rapid.SampledFrom([]int{429, 500, 502, 503}), 0, 2).Draw(t, "status")
	s.faults = rapid.SliceOfN(rapid.Custom(drawFault), 0, 6).Draw(t, "faults")

	return s
}

func drawFault(t *rapid.T) simrack.Fault {
	f := simrack.Fault{
		Operation: rapid.SampledFrom([]string{
			"disk_bulk_write_import", "disk_bulk_write_import", "disk_bulk_write_import", "disk_create", "disk_bulk_write_import_start",
			"disk_bulk_write_import_stop", "disk_finalize_import", "disk_view", "snapshot_view", "image_create", "image_promote",
			"image_list", "snapshot_delete", "disk_delete",
		}).Draw(t, "operation"),
		Action: rapid.SampledFrom([]simrack.Action{
			simrack.ActionError, simrack.ActionReset, simrack.ActionLoseAnswer, simrack.ActionErrorAfter, simrack.ActionCommitLate, simrack.ActionHang,
		}).Draw(t, "action"),
		Skip:  rapid.IntRange(0, 6).Draw(t, "skip"),
		Count: rapid.IntRange(1, 12).Draw(t, "count"),
	}

	if f.Action == simrack.ActionError || f.Action == simrack.ActionErrorAfter {
		f.Status = rapid.SampledFrom([]int{500, 502, 503}).Draw(t, "status")
	}

	if f.Action == simrack.ActionCommitLate {
		f.Delay = simrack.Duration(time.Duration(rapid.IntRange(1, 90).Draw(t, "delay")) * time.Second)
	}

	return f
}

func pack(t *rapid.T, form string, raw []byte) []byte {
	var (
		out bytes.Buffer
		w   io.WriteCloser
		err error
	)

	switch form {
	case "zst":
		w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	case "xz":
		w, err = xz.WriterConfig{DictCap: 64 << 10}.NewWriter(&out)
	case "gz":
		w = gzip.NewWriter(&out)
	case "raw":
		return raw
	}

	if err == nil {
		_, err = w.Write(raw)
	}

	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}

	return out.Bytes()
}

// ServeHTTP makes the script a factory.
type scriptedFactory struct {
	*script

	mu sync.Mutex
}

func (f *scriptedFactory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()

	status, cut := 0, -1
	if len(f.status) > 0 {
		status, f.status = f.status[0], f.status[1:]
	} else if len(f.cuts) > 0 {
		cut, f.cuts = f.cuts[0], f.cuts[1:]
	}

	f.mu.Unlock()

	if status != 0 {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(status)

		return
	}

	data := f.packed

	if f.ranges {
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("ETag", `"one"`)

		if text, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes="); ok {
			from, err := strconv.Atoi(strings.TrimSuffix(text, "-"))
			if err != nil || r.Header.Get("If-Range") != `"one"` {
				w.WriteHeader(http.StatusBadRequest)

				return
			}

			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)

			data = data[from:]
		}
	}

	if cut >= 0 {
		w.Write(data[:min(cut, len(data))])
		http.NewResponseController(w).Flush() //nolint:errcheck // as above
		panic(http.ErrAbortHandler)
	}

	w.Write(data)
}

// inMemory serves without sockets, so that time can be fake.
func inMemory(t *testing.T, h http.Handler) *http.Transport {
	t.Helper()

	l := bufconn.Listen(1 << 20)
	s := &http.Server{Handler: h}
	done := make(chan error, 1)

	go func() { done <- s.Serve(l) }()

	t.Cleanup(func() {
		s.Close()

		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})

	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }}
}

// Invariant: whatever the image, its compression and what goes wrong on the way
// from the factory to the rack, the image is the factory's disk byte for byte,
// and nothing else is left. It stays in its project if the rack will not promote it.
func TestTheImageInTheRackIsTheFactorys(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(rt *rapid.T) {
		s := drawScript(rt)

		var err error

		synctest.Test(t, func(t *testing.T) { err = s.run(t) })

		if err != nil {
			rt.Fatal(err)
		}
	})
}

func (s script) run(t *testing.T) error {
	t.Helper()

	sim, err := simrack.New(simrack.Config{Projects: []string{"demo"}, Faults: s.faults})
	if err != nil {
		return err
	}
	defer sim.Close()

	client, err := rack.New(rack.Config{Host: "http://rack.test", Token: simrack.DefaultToken, Transport: inMemory(t, sim)})
	if err != nil {
		return err
	}
	defer client.Close()

	factory := talos.NewFactory(talos.FactoryConfig{HTTP: &http.Client{Transport: inMemory(t, &scriptedFactory{script: &s})}})
	defer factory.Close()

	project, err := client.ViewProject(t.Context(), "demo")
	if err != nil {
		return err
	}

	w := newWorld()
	m, stop := w.start(t, "0a1b2c3d", func(c *image.Config) {
		c.Rack = client
		c.Source = image.FactorySource{Factory: factory, Address: func(context.Context) (image.Address, error) {
			return image.Address{Base: "http://" + identity().FactoryHost}, nil
		}}
	})
	defer stop()

	id, err := imported(t.Context(), m, image.Want{Identity: identity(), ProjectID: project.Id})
	if err != nil {
		return err
	}

	got, size, err := sim.ImageReader(id)
	if err != nil {
		return err
	}

	disk := make([]byte, len(s.raw)+1<<20)
	if _, err := got.ReadAt(disk, 0); err != nil {
		return err
	}

	if !bytes.Equal(disk[:len(s.raw)], s.raw) || bytes.Count(disk[len(s.raw):], []byte{0}) != 1<<20 || size != 1<<30 {
		return fmt.Errorf("the image of %d bytes is not the factory's disk", size)
	}

	time.Sleep(2 * time.Hour)

	if left := sim.Summary(); len(left.Disks) > 0 || left.Snapshots > 0 || left.SiloImages+left.ProjectImages != 1 {
		return fmt.Errorf("left over: disks %v, %d snapshots, %d images in the silo and %d in the project", left.Disks, left.Snapshots, left.SiloImages, left.ProjectImages)
	}

	return nil
}

// imported asks as a step does, until the image is ready.
func imported(ctx context.Context, m *image.Manager, want image.Want) (string, error) {
	end := time.Now().Add(6 * time.Hour)

	for {
		s, err := m.Ask(ctx, want)

		switch {
		case err != nil:
			return "", err
		case s.Ready:
			return s.ImageID, nil
		case time.Now().After(end):
			return "", fmt.Errorf("not ready: %s", s.Reason)
		}

		time.Sleep(s.RetryIn)
	}
}
