package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/image"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/naming"
	_ "github.com/oxidecomputer/omni-infra-provider-oxide/internal/provider" // for what the whole daemon has in memory
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/talos"
)

type importConfig struct {
	Rack    server `json:"rack"`
	Factory server `json:"factory"`
	Project string `json:"project"` // its ID
	// Uploads is how many images are imported side by side.
	Uploads int `json:"uploads"`
	// Profile is a directory for profiles of processor and memory, or empty.
	Profile string `json:"profile"`
}

// spent is what a piece of work took.
type spent struct {
	Wall time.Duration `json:"wall"`
	CPU  time.Duration `json:"cpu"`
}

func measure(f func() error) (spent, error) {
	before, start := cpu(), time.Now()
	err := f()

	return spent{time.Since(start), cpu() - before}, err
}

// cpu is the processor time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type importResult struct {
	spent

	// Writers is the most bulk writes that were open at once, Writes all of them.
	Writers int64    `json:"writers"`
	Writes  int64    `json:"writes"`
	Images  []string `json:"images"`
}

// counting is a rack that counts open bulk writes.
type counting struct {
	*rack.Client

	open, peak, all atomic.Int64
}

func (c *counting) BulkWrite(ctx context.Context, diskID string, offset uint64, chunk []byte) error {
	c.all.Add(1)

	for n := c.open.Add(1); ; {
		old := c.peak.Load()
		if n <= old || c.peak.CompareAndSwap(old, n) {
			break
		}
	}

	defer c.open.Add(-1)

	return c.Client.BulkWrite(ctx, diskID, offset, chunk)
}

// noRuns are the records of an Omni that has none.
type noRuns struct{}

func (noRuns) Renew(context.Context, []string, []image.JobInfo) error { return nil }
func (noRuns) Others(context.Context) ([]image.RunInfo, error)        { return nil, nil }
func (noRuns) Forget(context.Context, string) error                   { return nil }

// importImages is the daemon as far as images go.
func importImages(ctx context.Context, c importConfig, w *wire) error {
	rackTransport, err := transport(c.Rack)
	if err != nil {
		return err
	}

	client, err := rack.New(rack.Config{Host: c.Rack.URL, Token: simrack.DefaultToken, Transport: rackTransport})
	if err != nil {
		return err
	}
	defer client.Close()

	factoryTransport, err := transport(c.Factory)
	if err != nil {
		return err
	}

	factory := talos.NewFactory(talos.FactoryConfig{HTTP: &http.Client{Transport: factoryTransport}})
	defer factory.Close()

	counts := &counting{Client: client}
	m := image.New(image.Config{
		Rack: counts, Runs: noRuns{}, Log: zap.NewNop(),
		Source: image.FactorySource{Factory: factory, Address: func(context.Context) (image.Address, error) {
			return image.Address{Base: c.Factory.URL}, nil
		}},
		Owner: naming.NewOwner(), Provider: "bench", Run: naming.NewRun(), Uploads: max(c.Uploads, 1),
	})

	runCtx, stop := context.WithCancel(ctx)
	running := make(chan error, 1)

	go func() { running <- m.Run(runCtx) }()

	defer func() {
		stop()
		<-running //nolint:errcheck // told below, or something else was
	}()

	if err := w.tell(struct{}{}); err != nil || !w.wait() {
		return err
	}

	var result importResult

	stopProfile, err := profile(c.Profile)
	if err != nil {
		return err
	}

	result.spent, err = measure(func() error {
		result.Images, err = all(ctx, m, c)

		return err
	})

	stopProfile()

	if err != nil {
		return err
	}

	// The rack's scratch is removed behind the image's back.
	stop()

	if err := <-running; err != nil {
		return err
	}

	running <- nil

	result.Writers, result.Writes = counts.peak.Load(), counts.all.Load()

	if err := w.tell(result); err != nil {
		return err
	}

	w.wait()

	return nil
}

// profile starts profiles in a directory, if there is one.
func profile(dir string) (stop func(), err error) {
	if dir == "" {
		return func() {}, nil
	}

	file, err := os.Create(filepath.Join(dir, "cpu.pprof"))
	if err != nil {
		return nil, err
	}

	runtime.MemProfileRate = 4096

	return func() {
		pprof.StopCPUProfile()
		runtime.GC() // the profile tells what was allocated until the last one
		file.Close() //nolint:errcheck // a broken profile says so itself

		if heap, err := os.Create(filepath.Join(dir, "heap.pprof")); err == nil {
			pprof.Lookup("allocs").WriteTo(heap, 0) //nolint:errcheck // as above
			heap.Close()                            //nolint:errcheck // as above
		}
	}, pprof.StartCPUProfile(file)
}

// all imports all images at once and answers their IDs.
func all(ctx context.Context, m *image.Manager, c importConfig) ([]string, error) {
	base, err := url.Parse(c.Factory.URL)
	if err != nil {
		return nil, err
	}

	ids := make([]string, max(c.Uploads, 1))
	errs := make([]error, len(ids))

	var group sync.WaitGroup

	for i := range ids {
		want := image.Want{ProjectID: c.Project, Identity: naming.ImageIdentity{
			Schematic: schematic, Talos: fmt.Sprintf("1.13.%d", i), Arch: "amd64", FactoryHost: base.Host,
		}}

		group.Go(func() { ids[i], errs[i] = until(ctx, m, want) })
	}

	group.Wait()

	return ids, errors.Join(errs...)
}

// until asks as the daemon's steps do, but more often: what they would wait too
// long is not the importer's.
func until(ctx context.Context, m *image.Manager, want image.Want) (string, error) {
	for {
		s, err := m.Ask(ctx, want)
		if err != nil {
			return "", err
		}

		if s.Ready {
			return s.ImageID, nil
		}

		if strings.HasPrefix(s.Reason, "image import failed") {
			return "", errors.New(s.Reason)
		}

		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}
