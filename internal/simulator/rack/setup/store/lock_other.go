//go:build !unix

package store

import (
	"fmt"
	"os"
)

// takeLock holds no lock where the system has none that ends with the process.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the rack's directory: %w", err)
	}

	return f, nil
}
