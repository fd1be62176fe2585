//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// takeLock holds a lock that ends with the process, however that ends.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the rack's directory: %w", err)
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another rack runs in it, end that one or name another directory")
		}

		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}

	return f, nil
}
