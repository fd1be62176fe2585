package talos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fileIdle is how long a read of a file may take: a network file system that
// hangs is no image.
const fileIdle = time.Minute

// OpenFile reads a disk image from a file as Open reads it from a factory: raw,
// zst, xz or gz, found out from its content. Errors in the content are of type
// *FactoryError.
func OpenFile(ctx context.Context, path string) (*Stream, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the image: %w", err)
	}

	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		_ = file.Close()

		return nil, fmt.Errorf("opening the image: %s is no regular file", path)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	name := filepath.Base(path)

	s, err := newStream(FactoryError{Factory: "the file", File: name}, newSource(ctx, newAnswer(ctx, cancel, file, fileIdle), info.Size()))
	if err != nil {
		cancel(nil)

		_ = file.Close()

		return nil, err
	}

	return s, nil
}
