package factory

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/siderolabs/image-factory/pkg/schematic"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

const (
	// maxInMemory is the largest disk whose compressed forms stay in memory.
	maxInMemory = 64 << 20
	// maxBuilds is how many builds run at once, as in the real factory.
	maxBuilds = 6
)

// asset is what can be asked for: one disk in one form.
type asset struct {
	schematic, talos, arch string
	secureBoot             bool
	form                   string // .raw, .raw.xz or .raw.zst
}

// file is the asset's name.
func (a asset) file() string {
	name := "nocloud-" + a.arch
	if a.secureBoot {
		name += "-secureboot"
	}

	return name + a.form
}

// content is a finished build.
type content struct {
	io.ReaderAt

	size int64
}

// builder makes assets, each once, and keeps them until it is closed.
type builder struct {
	config Config
	ctx    context.Context // builds outlive the request that asked first
	places chan struct{}
	dir    string

	work sync.WaitGroup

	mu     sync.Mutex
	builds map[asset]*build
	files  []*os.File
}

type build struct {
	done    chan struct{}
	content content
	err     error
}

func newBuilder(ctx context.Context, config Config) (*builder, error) {
	b := &builder{config: config, ctx: ctx, places: make(chan struct{}, maxBuilds), builds: map[asset]*build{}}

	if config.ImageSize <= maxInMemory {
		return b, nil
	}

	if config.DataDir != "" {
		if err := os.MkdirAll(config.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("making the factory's data directory: %w", err)
		}
	}

	dir, err := os.MkdirTemp(config.DataDir, "images-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for images: %w", err)
	}

	b.dir = dir

	return b, nil
}

// get waits for the asset's build and starts it if nobody has. The build goes
// on when ctx ends.
func (b *builder) get(ctx context.Context, a asset, from *schematic.Schematic) (content, error) {
	b.mu.Lock()

	job, ok := b.builds[a]
	if !ok {
		job = &build{done: make(chan struct{})}
		b.builds[a] = job

		b.work.Go(func() {
			defer close(job.done)

			job.content, job.err = b.build(a, from)
			if job.err != nil {
				b.mu.Lock()
				delete(b.builds, a) // the next request tries again
				b.mu.Unlock()
			}
		})
	}

	b.mu.Unlock()

	select {
	case <-job.done:
		return job.content, job.err
	case <-ctx.Done():
		return content{}, ctx.Err()
	}
}

func (b *builder) build(a asset, from *schematic.Schematic) (content, error) {
	select {
	case b.places <- struct{}{}:
		defer func() { <-b.places }()
	case <-b.ctx.Done():
		return content{}, b.ctx.Err()
	}

	delay := time.NewTimer(time.Duration(float64(b.config.BuildDelay) * b.config.TimeScale))
	defer delay.Stop()

	select {
	case <-delay.C:
	case <-b.ctx.Done():
		return content{}, b.ctx.Err()
	}

	image, err := talosimage.New(talosimage.Descriptor{
		Talos: a.talos, Schematic: a.schematic, Arch: a.arch, Platform: "nocloud", SecureBoot: a.secureBoot,
		KernelArgs: from.Customization.ExtraKernelArgs, SectorSize: int(from.Customization.DiskImage.SectorSize),
	}, b.config.ImageSize, talosimage.Content{Bytes: b.config.ContentBytes})
	if err != nil {
		return content{}, err
	}

	if a.form == formRaw {
		return content{ReaderAt: image, size: image.Size()}, nil
	}

	return b.compress(a, image)
}

// compress stores the compressed disk, in memory if it is small.
func (b *builder) compress(a asset, image *talosimage.Image) (content, error) {
	encode := encodeZstd
	if a.form == formXZ {
		encode = encodeXZ
	}

	if b.dir == "" {
		var buf bytes.Buffer

		if err := encode(b.ctx, &buf, image); err != nil {
			return content{}, fmt.Errorf("building %s: %w", a.file(), err)
		}

		return content{ReaderAt: bytes.NewReader(buf.Bytes()), size: int64(buf.Len())}, nil
	}

	file, err := os.Create(filepath.Join(b.dir, fmt.Sprintf("%s-%s-%s", a.schematic, a.talos, a.file())))
	if err != nil {
		return content{}, fmt.Errorf("building %s: %w", a.file(), err)
	}

	b.mu.Lock()
	b.files = append(b.files, file)
	b.mu.Unlock()

	if err := encode(b.ctx, file, image); err != nil {
		return content{}, fmt.Errorf("building %s: %w", a.file(), err)
	}

	size, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return content{}, fmt.Errorf("building %s: %w", a.file(), err)
	}

	return content{ReaderAt: file, size: size}, nil
}

// close waits for the builds, whose context has ended, and removes the files.
func (b *builder) close() error {
	if b == nil {
		return nil
	}

	b.work.Wait()

	for _, file := range b.files {
		file.Close() //nolint:errcheck // removed next
	}

	if b.dir == "" {
		return nil
	}

	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("removing images: %w", err)
	}

	return nil
}
