package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
	"github.com/oxidecomputer/oxide.go/oxide"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/rack"
	simrack "github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/rack"
)

// once says that a part is ready, does its work and tells what it took.
func once(w *wire, f func() error) error {
	if err := w.tell(struct{}{}); err != nil || !w.wait() {
		return err
	}

	s, err := measure(f)
	if err != nil {
		return err
	}

	if err := w.tell(s); err != nil {
		return err
	}

	w.wait()

	return nil
}

type downloadConfig struct {
	Factory server `json:"factory"`
	File    string `json:"file"`
}

// downloadAlone reads the compressed image and throws it away.
func downloadAlone(ctx context.Context, c downloadConfig, w *wire) error {
	t, err := transport(c.Factory)
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()

	return once(w, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Factory.URL+"/image/"+schematic+"/v1.13.0/"+c.File, nil)
		if err != nil {
			return err
		}

		resp, err := (&http.Client{Transport: t}).Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // only read from

		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))

		return err
	})
}

type decodeConfig struct {
	File string `json:"file"`
}

// decodeAlone decodes a local file with one decoder: for zstd the daemon's
// library as it is by default, with one window of memory where the daemon gives
// it two, for xz the fastest well-kept one in pure Go.
func decodeAlone(_ context.Context, c decodeConfig, w *wire) error {
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read from

	return once(w, func() error {
		in := bufio.NewReaderSize(file, 256<<10)

		var r io.Reader

		if strings.HasSuffix(c.File, ".xz") {
			if r, err = xz.NewReader(in, 0); err != nil {
				return err
			}
		} else {
			d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
			if err != nil {
				return err
			}
			defer d.Close()

			r = d
		}

		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, rack.MaxChunk))
		if err != nil {
			return fmt.Errorf("decoding %s after %d bytes: %w", c.File, n, err)
		}

		return nil
	})
}

type uploadConfig struct {
	Rack    server `json:"rack"`
	Project string `json:"project"`
	File    string `json:"file"` // the raw disk
	Writers int    `json:"writers"`
}

type piece struct {
	offset uint64
	data   []byte
}

// uploadAlone writes the chunks that are not zeros from memory.
func uploadAlone(ctx context.Context, c uploadConfig, w *wire) error {
	t, err := transport(c.Rack)
	if err != nil {
		return err
	}

	client, err := rack.New(rack.Config{Host: c.Rack.URL, Token: simrack.DefaultToken, Transport: t})
	if err != nil {
		return err
	}
	defer client.Close()

	pieces, err := loadPieces(c.File)
	if err != nil {
		return err
	}

	disk, err := client.CreateDisk(ctx, c.Project, oxide.DiskCreate{
		Name: "alone", Description: "upload alone", Size: oxide.ByteCount(gib * 8),
		DiskBackend: oxide.DiskBackend{Value: &oxide.DiskBackendDistributed{
			DiskSource: oxide.DiskSource{Value: &oxide.DiskSourceImportingBlocks{BlockSize: 512}},
		}},
	})
	if err != nil {
		return err
	}

	if err := client.StartBulkWrite(ctx, disk.Id); err != nil {
		return err
	}

	return once(w, func() error { return write(ctx, client, disk.Id, pieces, c.Writers) })
}

func write(ctx context.Context, client *rack.Client, disk string, pieces []piece, writers int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var (
		group sync.WaitGroup
		next  = make(chan piece)
	)

	for range writers {
		group.Go(func() {
			for p := range next {
				if err := client.BulkWrite(ctx, disk, p.offset, p.data); err != nil {
					cancel(err)
				}
			}
		})
	}

	for _, p := range pieces {
		next <- p
	}

	close(next)
	group.Wait()

	return context.Cause(ctx)
}

// loadPieces reads the chunks of a disk that are not zeros.
func loadPieces(name string) ([]piece, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from

	var (
		all   []piece
		zeros = make([]byte, rack.MaxChunk)
		buf   = make([]byte, rack.MaxChunk)
	)

	for offset := uint64(0); ; offset += rack.MaxChunk {
		n, err := io.ReadFull(file, buf)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			all = append(all, piece{offset, bytes.Clone(buf[:n])})
		}

		if err != nil {
			return all, ignoreEnd(err)
		}
	}
}

func ignoreEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // io.ReadFull wraps neither
		return nil
	}

	return err
}
