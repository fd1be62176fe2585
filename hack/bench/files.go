package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/oxidecomputer/omni-infra-provider-oxide/internal/simulator/talosimage"
)

const (
	gib       = 1 << 30
	schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// imageFiles are one image in all its forms.
type imageFiles struct {
	size          int64
	raw, zstd, xz string
	sum           string // SHA-256 of raw in hex
}

// makeImage makes the files that are not in the directory yet. The image is
// synthetic and always the same.
func makeImage(ctx context.Context, dir string, size int64, withXZ bool) (imageFiles, error) {
	f := imageFiles{size: size, raw: filepath.Join(dir, fmt.Sprintf("nocloud-%d.raw", size))}
	f.zstd, f.xz = f.raw+".zst", f.raw+".xz"

	if err := os.MkdirAll(dir, 0o750); err != nil {
		return f, err
	}

	err := ensure(f.raw, func(tmp string) error {
		img, err := talosimage.New(talosimage.Descriptor{Talos: "1.13.5", Schematic: schematic, Arch: "amd64"}, size,
			talosimage.Content{Bytes: talosimage.FullContent})
		if err != nil {
			return err
		}

		return writeFile(tmp, func(w io.Writer) error {
			_, err := io.Copy(w, img.Reader())

			return err
		})
	})
	if err != nil {
		return f, fmt.Errorf("making the raw image: %w", err)
	}

	if err := ensure(f.zstd, func(tmp string) error { return compressZstd(ctx, f, tmp) }); err != nil {
		return f, fmt.Errorf("making the zstd image: %w", err)
	}

	if withXZ {
		err := ensure(f.xz, func(tmp string) error { return program(ctx, tmp, "xz", "-0", "-T0", "-c", f.raw) })
		if err != nil {
			return f, fmt.Errorf("making the xz image: %w", err)
		}
	}

	if f.sum, err = sumOf(f.raw); err != nil {
		return f, err
	}

	return f, nil
}

// compressZstd makes the file with the options of Talos' imager if the zstd
// program is there, else with the library's best.
func compressZstd(ctx context.Context, f imageFiles, tmp string) error {
	err := program(ctx, tmp, "zstd", "-q", "-18", "-T0", "-c", f.raw)
	if !errors.Is(err, exec.ErrNotFound) {
		return err
	}

	return writeFile(tmp, func(w io.Writer) error {
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20))
		if err != nil {
			return err
		}

		raw, err := os.Open(f.raw)
		if err != nil {
			return err
		}
		defer raw.Close() //nolint:errcheck // only read from

		enc.ResetContentSize(w, f.size)

		if _, err := io.Copy(enc, raw); err != nil {
			return err
		}

		return enc.Close()
	})
}

// ensure makes a file under a temporary name unless it is there.
func ensure(name string, f func(tmp string) error) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}

	fmt.Fprintln(os.Stderr, "making", name)

	tmp := name + ".part"
	if err := f(tmp); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}

	return os.Rename(tmp, name)
}

func writeFile(name string, f func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}

	w := bufio.NewWriterSize(file, 1<<20)

	return errors.Join(f(w), w.Flush(), file.Close())
}

// program writes a program's output into a file.
func program(ctx context.Context, out, name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		return err
	}

	return writeFile(out, func(w io.Writer) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdout, cmd.Stderr = w, os.Stderr

		return cmd.Run()
	})
}

func sumOf(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // only read from

	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}

	return hex.EncodeToString(h.Sum(nil)), nil
}
