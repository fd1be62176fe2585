package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/site"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

const (
	// maxTeardownCalls is for a machine without a disk beside the boot disk.
	maxTeardownCalls = 6
	// maxStopOverBound is by how much the last stops may be later than theory has it.
	maxStopOverBound = 1.5
	// maxUploadSlower is by how much uploads may be slower beside teardowns.
	maxUploadSlower = 1.15
	// maxProbes is how many looks at the quota there may be each minute.
	maxProbes = 2
	// hugeMemory is in GiB: no quota here has room for it.
	hugeMemory = 1536
	// The image that is uploaded.
	loadImageSize    = 512 << 20
	loadImageContent = 192 << 20
)

// measureTeardown has half of the machines, on a site of their own.
func (o *loadOptions) measureTeardown(ctx context.Context) (r loadResult, err error) {
	own := *o
	own.machines, own.stop, own.join = max(o.machines/2, 1), o.longStop, false

	dir, err := os.MkdirTemp("", "oipo-teardown-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only litter is left otherwise

	factory, stop, err := serveImage(ctx, dir, o.uploadRate)
	if err != nil {
		return r, err
	}

	defer func() { err = errors.Join(err, stop()) }()

	s, err := openLoadSite(ctx, own, []string{"IMAGE_FACTORY_URL=" + factory}, func(c *site.Config) {
		c.Rack.Content = simrack.ContentNone
		c.Rack.Quota.Memory = int64(min(own.machines+64, hugeMemory-1)) << 30
	})
	if err != nil {
		return r, err
	}

	defer func() { err = errors.Join(err, s.close()) }()

	if err := s.populate(ctx); err != nil {
		return r, err
	}

	return s.teardown(ctx)
}

func (s *loadSite) teardown(ctx context.Context) (loadResult, error) {
	r := loadResult{Row: rowTeardown, Conditions: s.conditions(), About: fmt.Sprintf(
		"%d machines are removed at once while %d images are uploaded at %d MB/s each and %d requests wait for quota; calls are for each machine; real time, the daemon is a process",
		s.o.machines, s.o.uploads, s.o.uploadRate/mega, s.o.waiting)}

	ids, names, err := s.toRemove(ctx)
	if err != nil {
		return r, err
	}

	if err := s.crowd(ctx); err != nil {
		return r, err
	}

	alone, err := s.upload(ctx, "alone", func() error { return nil })
	if err != nil {
		return r, err
	}

	s.rackCalls.take()
	s.omniCalls.take()

	before, err := s.daemon.cpu()
	if err != nil {
		return r, err
	}

	began := time.Now()

	beside, err := s.upload(ctx, "beside", func() error {
		began = time.Now()

		for _, id := range ids {
			if err := s.fleet.remove(ctx, id); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return r, err
	}

	if err := s.until(ctx, time.Duration(len(ids))*2*time.Second+10*time.Minute, "all machines to be removed", func() bool { return s.fleet.leaving() == 0 }); err != nil {
		return r, err
	}

	wall := time.Since(began)

	after, err := s.daemon.cpu()
	if err != nil {
		return r, err
	}

	rack, _ := s.rackCalls.take()
	omni, _ := s.omniCalls.take()

	// What is about images and quota is no machine's.
	own, n := ofTeardowns(rack), float64(len(ids))

	s.stops(&r, ids, names)
	r.add("all removed", wall.Seconds(), "s", 0)

	if s.o.uploads > 0 {
		r.bounded("an upload", beside.Seconds(), "s", alone.Seconds(), maxUploadSlower)
	}

	r.add("looks at the quota", float64(rack["utilization_view"])/wall.Minutes(), "calls/min", maxProbes)

	// Machines of the uploads that start meanwhile are looked at too.
	limit := 0.0
	if s.o.uploads == 0 {
		limit = maxTeardownCalls
	}

	r.add("rack calls", float64(sumOfCalls(own))/n, "calls/machine", limit)
	r.add("Omni writes", float64(sumOfCalls(writes(omni)))/n, "writes/machine", 0)
	r.add("processor", (after-before).Seconds()/n, "s/machine", 0)
	r.RackCalls, r.OmniCalls = each(rack, n), each(omni, n)

	return r, nil
}

// crowd has requests wait for quota.
func (s *loadSite) crowd(ctx context.Context) error {
	for i := range s.o.waiting {
		if err := s.fleet.ask(ctx, fmt.Sprintf("wait-%d", i), fmt.Sprintf("project: %s\nmemory: %d\n", projectName(0), hugeMemory)); err != nil {
			return err
		}
	}

	return s.until(ctx, 5*time.Minute, "requests to wait for quota", func() bool { return s.fleet.waitingFor("quota") == s.o.waiting })
}

// ofTeardowns are the calls that teardowns make.
func ofTeardowns(rack map[string]int) map[string]int {
	own := map[string]int{}

	for k, v := range rack {
		for _, prefix := range []string{"instance_stop", "instance_view", "instance_list", "instance_delete", "disk_list"} {
			if strings.HasPrefix(k, prefix) {
				own[k] = v
			}
		}
	}

	if n, ok := rack["disk_delete"]; ok {
		own["disk_delete"] = n
	}

	return own
}

// toRemove are the machines that run, and the IDs of their instances.
func (s *loadSite) toRemove(ctx context.Context) (ids []string, names map[string]string, err error) {
	all, err := s.instances(ctx)
	if err != nil {
		return nil, nil, err
	}

	names = map[string]string{}
	for _, i := range all {
		names[string(i.Name)] = i.Id
	}

	for id, m := range s.fleet.seen() {
		if !m.provisioned.IsZero() && m.removed.IsZero() {
			ids = append(ids, id)
		}
	}

	slices.Sort(ids)

	return ids, names, nil
}

// upload has images uploaded, does something when all have begun, and answers how
// long one took in the mean.
func (s *loadSite) upload(ctx context.Context, name string, then func() error) (time.Duration, error) {
	s.timesMu.Lock()
	clear(s.begun)
	clear(s.ended)
	s.timesMu.Unlock()

	for i := range s.o.uploads {
		class := fmt.Sprintf("project: %s\nmemory: 1\nkernel_args: [load.%s=%d]\n", projectName(0), name, i)
		if err := s.fleet.ask(ctx, fmt.Sprintf("upload-%s-%d", name, i), class); err != nil {
			return 0, err
		}
	}

	many := func(times map[string]time.Time) func() bool {
		return func() bool {
			s.timesMu.Lock()
			defer s.timesMu.Unlock()

			return len(times) == s.o.uploads
		}
	}

	if err := s.until(ctx, 2*time.Minute, "uploads to begin", many(s.begun)); err != nil {
		return 0, err
	}

	if err := then(); err != nil {
		return 0, err
	}

	if err := s.until(ctx, 10*time.Minute, "uploads to end", many(s.ended)); err != nil {
		return 0, err
	}

	s.timesMu.Lock()
	defer s.timesMu.Unlock()

	var sum time.Duration
	for disk, at := range s.ended {
		sum += at.Sub(s.begun[disk])
	}

	return sum / time.Duration(max(s.o.uploads, 1)), nil
}

// stops compares how long it took from tearing a request down to the first call
// that stops its instance with what the limit of such calls at once allows: each
// takes a look and the stop.
func (s *loadSite) stops(r *loadResult, ids []string, names map[string]string) {
	seen := s.fleet.seen()

	s.timesMu.Lock()
	defer s.timesMu.Unlock()

	var took, best []time.Duration

	atOnce := max(s.o.creates/2, 1)

	for n, id := range ids {
		if at, ok := s.firstStop[names[id]]; ok {
			took = append(took, at.Sub(seen[id].removed))
		}

		// The call that is noted begins a look after its turn has come.
		best = append(best, time.Duration(n/atOnce+1)*2*s.o.call-s.o.call)
	}

	values, bounds := seconds(took), seconds(best)
	r.bounded("teardown to first stop, p50", percentile(values, 0.5), "s", percentile(bounds, 0.5), 0)
	r.bounded("teardown to first stop, p99", percentile(values, 0.99), "s", percentile(bounds, 0.99), maxStopOverBound)
	r.none("machines that were never stopped", float64(len(ids)-len(took)), "machines")
}

// serveImage serves one image under all names, each download at a rate.
func serveImage(ctx context.Context, dir string, rate int64) (url string, stop func() error, err error) {
	name := filepath.Join(dir, "image.zst")

	img, err := talosimage.New(talosimage.Descriptor{Talos: "1.13.5", Schematic: schematic, Arch: "amd64"}, loadImageSize,
		talosimage.Content{Bytes: loadImageContent})
	if err != nil {
		return "", nil, err
	}

	if err := writeFile(name, func(w io.Writer) error {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(8<<20))
		if err != nil {
			return err
		}

		enc.ResetContentSize(w, loadImageSize)

		if _, err := io.Copy(enc, img.Reader()); err != nil {
			return err
		}

		return enc.Close()
	}); err != nil {
		return "", nil, err
	}

	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}

	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.HasSuffix(req.URL.Path, ".raw.zst") {
			http.NotFound(w, req)

			return
		}

		file, err := os.Open(name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)

			return
		}
		defer file.Close() //nolint:errcheck // only read from

		sendPaced(w, file, rate)
	})}

	done := make(chan error, 1)

	go func() { done <- srv.Serve(l) }()

	return "http://" + l.Addr().String(), func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}

		return err
	}, nil
}

// sendPaced sends a file at a rate.
func sendPaced(w http.ResponseWriter, file *os.File, rate int64) {
	info, err := file.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	}

	w.Header().Set("Content-Length", fmt.Sprint(info.Size()))

	var p pacer

	for buf := make([]byte, 32<<10); ; {
		n, err := file.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil || err != nil {
			return
		}

		p.spend(n, rate)
	}
}
